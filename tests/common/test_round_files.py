"""One file or folder for each round, and what is wrong with one hides no other."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from common.files import DamagedFileError
from common.round_files import RoundFiles


def files_of(folder: Path, *rounds: int, suffix: str = ".txt") -> RoundFiles:
    files = RoundFiles(folder, suffix)
    for server_round in rounds:
        files.path(server_round).write_text(str(server_round))
    return files


def read(path: Path) -> int:
    text = path.read_text()
    if not text.isdigit():
        raise DamagedFileError(f"{path} is damaged")
    return int(text)


def test_rounds_come_newest_first_also_beyond_a_million(tmp_path: Path) -> None:
    assert files_of(tmp_path, 2, 1_000_000, 999_999).rounds() == [1_000_000, 999_999, 2]


def test_a_folder_that_is_not_there_has_no_rounds(tmp_path: Path) -> None:
    files = RoundFiles(tmp_path / "none")
    assert (files.rounds(), files.has_damaged(), list(files.whole(read))) == ([], False, [])


def test_names_that_are_written_another_way_are_left_alone(tmp_path: Path) -> None:
    files = files_of(tmp_path, 1)
    for name in ("round-2.txt", "round-0000003.txt", "round-000004 copy.txt", "round-000005"):
        (tmp_path / name).write_text("9")
    files.prune(0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "round-0000003.txt", "round-000004 copy.txt", "round-000005", "round-2.txt",
    ]  # fmt: skip


def test_a_damaged_one_is_set_aside_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="moonflower")
    files = files_of(tmp_path, 1, 2, 3)
    files.path(2).write_text("?")
    assert not files.has_damaged()
    assert list(files.whole(read)) == [(3, 3), (1, 1)]
    assert files.has_damaged()
    assert "round-000002.txt.damaged-1" in caplog.text


def test_only_rounds_before_the_given_one_are_looked_at(tmp_path: Path) -> None:
    files = files_of(tmp_path, 1, 2, 3)
    files.path(3).write_text("?")
    assert list(files.whole(read, before=3)) == [(2, 2), (1, 1)]
    assert not files.has_damaged()


def test_the_newest_are_kept_files_and_folders_alike(tmp_path: Path) -> None:
    folders = RoundFiles(tmp_path)
    for server_round in (1, 2, 3):
        folders.path(server_round).mkdir()
        (folders.path(server_round) / "content").touch()
    folders.prune(2)
    assert folders.rounds() == [3, 2]
    assert len(list(tmp_path.iterdir())) == 2, "nothing half-deleted is left"

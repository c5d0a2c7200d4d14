"""A checkpoint is whole or absent, and bits come back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from common.storage import write_tensors
from server_app.errors import ResumeError
from server_app.experiment.checkpoint import (
    Best,
    Checkpoint,
    has_damaged,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)

FILES = ["checkpoint.json", "history.jsonl", "model.safetensors", "strategy.safetensors"]


def checkpoint(server_round: int) -> Checkpoint:
    """Return one whose tensors hold the round."""
    return Checkpoint(
        server_round=server_round,
        arrays={"weight": torch.full((2, 3), float(server_round)), "n": torch.tensor(server_round)},
        strategy={"FedAvgM/momentum_vector/0": torch.tensor(0.1 * server_round).double()},
        lines=[{"round": n, "train": {"loss": 0.1 * n}} for n in range(1, server_round + 1)],
        best=Best(1, "global accuracy", 0.1 + 0.2),
        versions={"torch": "2"},
    )


def names(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


def round_of(folder: Path) -> int | None:
    """Return the round of the newest whole checkpoint."""
    found = newest_checkpoint(folder)
    return found.server_round if found else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the checkpoints of rounds 1, 2 and 3."""
    for server_round in (1, 2, 3):
        save_checkpoint(tmp_path / "checkpoints", checkpoint(server_round))
    return tmp_path / "checkpoints"


def test_the_newest_comes_back_bit_for_bit(folder: Path) -> None:
    found, saved = newest_checkpoint(folder), checkpoint(3)
    assert found is not None
    for one, other in ((found.arrays, saved.arrays), (found.strategy, saved.strategy)):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert all(one[name].dtype == other[name].dtype for name in one)
    assert found.lines == saved.lines
    assert (found.best, found.versions) == (saved.best, saved.versions)


def test_a_checkpoint_is_four_files(folder: Path) -> None:
    assert names(folder) == ["round-000001", "round-000002", "round-000003"]
    assert names(folder / "round-000003") == FILES


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "nowhere") is None
    assert newest_checkpoint(tmp_path) is None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "empty"])
def test_of_a_damaged_one_nothing_is_used_and_the_one_before_is(
    folder: Path, name: str, damage: str
) -> None:
    path = folder / "round-000003" / name
    blob = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "truncate":
        path.write_bytes(blob[: len(blob) // 2])
    else:
        blob[len(blob) // 2] ^= 1
        path.write_bytes(blob)
    assert round_of(folder) == 2
    assert names(folder) == ["round-000001", "round-000002", "round-000003.damaged-1"]
    assert has_damaged(folder)


def test_every_flipped_bit_of_the_description_is_noticed(folder: Path) -> None:
    path = folder / "round-000003" / "checkpoint.json"
    blob = path.read_bytes()
    for place in range(0, len(blob) - 1, 3):  # the last byte is a line end
        changed = bytearray(blob)
        changed[place] ^= 4
        path.write_bytes(changed)
        assert round_of(folder) != 3, f"byte {place} of {len(blob)}: {blob[place : place + 1]!r}"
        (folder / "round-000003.damaged-1").rename(folder / "round-000003")


@pytest.mark.parametrize("name", FILES[1:])
def test_a_whole_file_of_another_round_is_damage(folder: Path, name: str) -> None:
    shutil.copy(folder / "round-000001" / name, folder / "round-000003" / name)
    assert round_of(folder) == 2


def describe(folder: Path, **changes: Any) -> None:
    """Change the description of a checkpoint; its checksum fits again."""
    path = folder / "checkpoint.json"
    facts = json.loads(path.read_text()) | changes
    del facts["sha256"]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**facts, "sha256": digest}))


def test_one_of_version_0_1_whose_files_carry_their_own_hash_too_is_read(folder: Path) -> None:
    newest, saved = folder / "round-000003", checkpoint(3)
    write_tensors(newest / "model.safetensors", saved.arrays, {})
    write_tensors(newest / "strategy.safetensors", saved.strategy, {})
    digests = {name: hashlib.sha256((newest / name).read_bytes()).hexdigest() for name in FILES[1:]}
    describe(newest, format=1, files=digests)
    assert round_of(folder) == 3


def test_one_of_a_newer_version_is_refused_and_stays(folder: Path) -> None:
    describe(folder / "round-000003", format=3)
    with pytest.raises(ResumeError, match=r"has format 3, this version .* reads up to 2"):
        newest_checkpoint(folder)
    assert "round-000003" in names(folder)


def test_all_damaged_is_none_and_can_be_told_from_never_saved(folder: Path) -> None:
    assert not has_damaged(folder)
    for path in folder.iterdir():
        (path / "model.safetensors").write_bytes(b"")
    assert newest_checkpoint(folder) is None
    assert has_damaged(folder)


def test_only_the_newest_are_kept(folder: Path) -> None:
    prune_checkpoints(folder, 2)
    assert names(folder) == ["round-000002", "round-000003"]


@pytest.mark.parametrize("call", ["fsync", "replace", "rename"])
def test_a_failing_disk_leaves_the_earlier_ones_and_nothing_half_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(folder, checkpoint(4))
    monkeypatch.undo()
    assert names(folder) == ["round-000001", "round-000002", "round-000003"]
    assert round_of(folder) == 3


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    half = folder / ".round-000004.0123abcd.unfinished"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert round_of(folder) == 3
    assert not half.exists()


def test_a_round_that_is_played_again_replaces_its_checkpoint(folder: Path) -> None:
    again = Checkpoint(3, {"weight": torch.zeros(1)}, {}, [], None, {})
    save_checkpoint(folder, again)
    found = newest_checkpoint(folder)
    assert found is not None
    assert list(found.arrays) == ["weight"]


def test_copies_and_other_names_in_the_folder_are_left_alone(folder: Path) -> None:
    for name in ("round-0000009", "round-000009 copy", "round-٠٠٠٠٠٩", "notes.txt"):
        shutil.copytree(folder / "round-000001", folder / name)
    before = names(folder)
    assert round_of(folder) == 3
    prune_checkpoints(folder, 3)
    assert names(folder) == before


def test_a_checkpoint_under_the_name_of_another_round_is_set_aside(folder: Path) -> None:
    shutil.copytree(folder / "round-000001", folder / "round-000009")
    assert round_of(folder) == 3
    assert "round-000009.damaged-1" in names(folder)

"""A session without cells to run: what it writes, and who may write."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from common.config import SettingsError
from scripts.moonflower.research.reproduce.cell_process import Places
from scripts.moonflower.research.reproduce.reproduction import Session
from tests.scripts.research.reproduce.tables import cells, request, write_run


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session whose chosen cell is finished."""
    # They are for a process of its own: here other tests' processes are below this one.
    for name in ("adopt_orphans", "end_descendants"):
        monkeypatch.setattr(
            f"scripts.moonflower.research.reproduce.reproduction.{name}", lambda: None
        )
    (cell,) = (each for each in cells(seeds=[0]) if each.experiment == "two.moon-a.1.seed-0")
    write_run(tmp_path / "runs", cell, [0.1, 0.2, 0.3, 0.4])
    return Session.of(request(seeds=[0]), ["moon-a/1"], Places(tmp_path, None), 1, 0.0)


def test_a_finished_table_is_written_again(session: Session, tmp_path: Path) -> None:
    said: list[str] = []
    assert session.run(said.append) == 0
    assert said[-2:] == [str(tmp_path / "two.md"), str(tmp_path / "two.png")]
    assert "| MOON | - | - | - | 35.00 (1 run) |" in (tmp_path / "two.md").read_text()


def test_a_table_that_can_not_be_written_is_said(session: Session, tmp_path: Path) -> None:
    (tmp_path / "two.md").mkdir()
    said: list[str] = []
    assert session.run(said.append) == 1
    assert "the table can't be written" in said[-1]


def test_one_at_a_time_writes_to_a_folder(session: Session, tmp_path: Path) -> None:
    said: list[str] = []
    with (
        FileLock(tmp_path / ".reproduce.lock"),
        pytest.raises(SettingsError, match="another moonflower reproduce is writing to"),
    ):
        session.run(said.append)
    assert not said
    assert session.run(said.append) == 0

"""activity.json says what goes on, and costs a run nothing when it can't."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server_app.experiment.activity import Activity


def read(folder: Path) -> dict[str, object]:
    """Return what it says, without the time."""
    content = json.loads((folder / "activity.json").read_text())
    return {key: value for key, value in content.items() if key != "time"}


def test_a_round_is_said_with_who_is_connected_and_a_finished_run_leaves_nothing(
    tmp_path: Path,
) -> None:
    activity = Activity(tmp_path)
    activity.begin_round(3, ["a", "b"])
    assert read(tmp_path) == {"round": 3, "clients": ["a", "b"]}
    activity.finish()
    activity.stop("")
    assert list(tmp_path.iterdir()) == []


def test_the_first_reason_stays_and_a_run_without_a_round_gives_none(tmp_path: Path) -> None:
    Activity(tmp_path).stop("never begun")
    assert list(tmp_path.iterdir()) == []
    activity = Activity(tmp_path)
    activity.begin_round(3, ["a"])
    activity.stop("the model diverged")
    activity.stop("")
    assert read(tmp_path) == {"round": 3, "clients": ["a"], "ended": "the model diverged"}


def test_a_folder_that_is_gone_is_a_warning_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    activity = Activity(tmp_path / "file")
    activity.begin_round(1, [])
    activity.begin_round(2, [])
    assert caplog.text.count("does not say what goes on") == 1

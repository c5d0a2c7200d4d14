"""Whenever the server dies while it writes, the next one finishes what it left."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from common.models import load_facts, load_model
from server_app.experiment.tracker import Tracker
from tests.server_app.experiment.test_tracker import SETTINGS, SPEC, model_of, report

# Round 2 is the best, so that best/ is written in rounds 1 and 2 and not in 3.
ACCURACY = {1: 0.3, 2: 0.8, 3: 0.5}
LAST = 3
OPERATIONS = ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir")


class Killed(BaseException):
    """The process is gone."""


class Disk:
    """The disk of a process that is killed before its n-th change of a file or folder."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.left, self.done = last, 0
        for name in OPERATIONS:
            patch.setattr(os, name, self._until_killed(getattr(os, name)))

    def _until_killed(self, real: Any) -> Any:
        def operation(*args: Any, **kwargs: Any) -> Any:
            if self.done >= self.left:
                raise Killed  # and everything after it as well: the dead clean nothing up
            self.done += 1
            return real(*args, **kwargs)

        return operation


def play(tracker: Tracker, first_round: int) -> None:
    """Write the rounds from this one on, and the final model."""
    for server_round in range(first_round, LAST + 1):
        model = model_of(float(server_round))
        state = {"FedAvg/x": torch.tensor(server_round)}
        tracker.write_round(report(server_round, ACCURACY[server_round]), model, state)
    tracker.write_final(model_of(float(LAST)))


def go_on(folder: Path) -> int:
    """Resume and play to the end; return the first round that was played."""
    with closing(Tracker(folder, SETTINGS, SPEC)) as tracker:
        checkpoint = tracker.reopen()
        first = 1
        if checkpoint is not None:
            first = checkpoint.server_round + 1
            assert int(checkpoint.strategy["FedAvg/x"]) == checkpoint.server_round
            model = model_of(0.0)
            model.load_state_dict(dict(checkpoint.arrays))
            tracker.restore(checkpoint, model)
        tracker.begin([])
        play(tracker, first)
    return first


def contents(folder: Path) -> dict[str, Any]:
    """Return everything an experiment's folder holds, hidden files too, without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "lines": lines,
        "names": sorted(p.name for p in folder.iterdir() if p.name != ".lock"),
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").iterdir()),
        **{name: weight_and_facts(folder / name) for name in ("best", "final")},
    }


def weight_and_facts(folder: Path) -> tuple[float, dict[str, Any]]:
    """Return the one value of a model's weights, and its facts."""
    weight = next(iter(load_model(folder).parameters())).detach().flatten()[0]
    return float(weight), load_facts(folder)


def start(folder: Path) -> Tracker:
    """Return the tracker of a new experiment."""
    tracker = Tracker(folder, SETTINGS, SPEC)
    tracker.begin([])
    return tracker


@pytest.mark.slow
def test_killed_before_any_change_of_the_disk_the_folder_ends_up_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, closing(start(tmp_path / "steady" / "exp")) as tracker:
        disk = Disk(patch, 10**9)
        play(tracker, 1)
    changes, expected = disk.done, contents(tmp_path / "steady" / "exp")
    assert changes > 80
    firsts = set()
    for last in range(changes):
        folder = tmp_path / str(last) / "exp"
        tracker = start(folder)
        with monkeypatch.context() as patch:
            Disk(patch, last)
            with pytest.raises(Killed):
                play(tracker, 1)
        tracker.close()
        firsts.add(go_on(folder))
        assert contents(folder) == expected, f"killed before change {last} of {changes}"
    assert firsts == {1, 2, 3, 4}


def resumed(folder: Path) -> Tracker:
    """Reopen and restore, without playing on."""
    tracker = Tracker(folder, SETTINGS, SPEC)
    checkpoint = tracker.reopen()
    assert checkpoint is not None
    model = model_of(float(checkpoint.server_round))
    tracker.restore(checkpoint, model)
    return tracker


def damage(folder: Path, server_round: int) -> None:
    """Make a checkpoint unreadable."""
    path = folder / "checkpoints" / f"round-{server_round:06d}" / "checkpoint.json"
    path.write_bytes(b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an experiment of which two rounds were played, the second the best."""
    folder = tmp_path / "exp"
    with closing(start(folder)) as tracker:
        for server_round in (1, 2):
            model = model_of(float(server_round))
            tracker.write_round(report(server_round, ACCURACY[server_round]), model, {})
    return folder


def test_lines_beyond_the_checkpoint_are_dropped(folder: Path) -> None:
    damage(folder, 2)
    resumed(folder).close()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1]


def test_a_best_model_that_is_gone_is_written_again_if_it_is_the_checkpoints(folder: Path) -> None:
    (folder / "best").rename(folder.parent / "elsewhere")
    with closing(resumed(folder)) as tracker:
        assert tracker.best is not None
        assert tracker.best.server_round == 2
    assert weight_and_facts(folder / "best")[0] == 2.0


def test_damaged_weights_of_the_best_model_are_noticed(folder: Path) -> None:
    (folder / "best" / "model.safetensors").write_bytes(b"")
    resumed(folder).close()
    assert weight_and_facts(folder / "best")[0] == 2.0


def test_the_best_model_of_a_round_that_is_played_again_gives_way_to_a_better_one_only(
    tmp_path: Path,
) -> None:
    # Round 1 was not evaluated, round 2 is the best, and its checkpoint is lost.
    folder = tmp_path / "exp"
    with closing(start(folder)) as tracker:
        tracker.write_round(report(1, None), model_of(1.0), {})
        tracker.write_round(report(2, 0.8), model_of(2.0), {})
    damage(folder, 2)
    with closing(resumed(folder)) as tracker:
        tracker.write_round(report(2, 0.7), model_of(9.0), {})
        assert weight_and_facts(folder / "best")[0] == 2.0
        tracker.write_round(report(3, 0.9), model_of(3.0), {})
        assert weight_and_facts(folder / "best")[0] == 3.0


def test_an_older_best_model_that_is_gone_is_followed_by_the_best_from_now_on(
    folder: Path,
) -> None:
    with closing(resumed(folder)) as tracker:
        tracker.write_round(report(3, 0.1), model_of(3.0), {})
    (folder / "best").rename(folder.parent / "elsewhere")
    with closing(resumed(folder)) as tracker:
        assert tracker.best is None
        tracker.write_round(report(4, 0.2), model_of(4.0), {})
    assert weight_and_facts(folder / "best")[0] == 4.0


def test_the_experiments_id_survives_resuming_and_is_new_for_a_new_one(tmp_path: Path) -> None:
    with closing(start(tmp_path / "one")) as one, closing(start(tmp_path / "two")) as two:
        assert one.experiment_id != two.experiment_id
    with closing(Tracker(tmp_path / "one", SETTINGS, SPEC)) as again:
        again.reopen()
        again.begin([])
        assert again.experiment_id == one.experiment_id
    facts = json.loads((tmp_path / "one" / "settings.json").read_text())
    assert (facts["id"], len(facts["resumed"])) == (one.experiment_id, 1)


def test_a_server_that_was_killed_before_it_wrote_its_settings_can_be_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "exp").mkdir()
    assert go_on(tmp_path / "exp") == 1
    assert contents(tmp_path / "exp")["final"][0] == 3.0

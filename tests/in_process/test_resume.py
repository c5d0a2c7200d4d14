"""A run that was interrupted and resumed gives the bits of one that was not."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from common.config import ALGORITHMS
from common.models import MODELS, load_facts, load_model
from server_app.errors import PERMANENT, NothingToResumeError, OutputError, ResumeError
from server_app.experiment.resume import ExperimentExistsError, locked
from server_app.rounds.federation import ClientFailedError
from tests.in_process.grid import Fault, fails, run_in_process

BASE = {
    "num-rounds": 3,
    "train.local-epochs": 1,
    "data.fraction": 0.3,
    "experiment": "exp",
    "server.learning-rate": 0.3,
    "server.momentum": 0.5,
    "fedgen.server-steps": 3,
    "model.name": "fedgen-cnn",  # BatchNorm: buffers have to come back as well
}
RUNS = {
    "fedavg": {"algorithm": "fedavg", "server.aggregator": "fedadam"},
    "fedprox": {
        "algorithm": "fedprox",
        "server.evaluate-personal": True,
        "server.client-weights": "client-0001=2.5",
    },
    "moon": {"algorithm": "moon", "moon.buffer-size": 2},
    "moon-ema-schedules": {
        "algorithm": "moon",
        "server.aggregator": "fedavgm",
        "moon.previous": "ema",
        "moon.mu-start": 0.1,
        "moon.mu-rounds": 2,
        "train.learning-rate-warm-up": 1,
        "server.learning-rate-decay": 0.5,
        "server.learning-rate-schedule": "cosine",
        "server.learning-rate-rounds": 2,
    },
    "fedgen": {"algorithm": "fedgen", "server.aggregator": "fedyogi"},
    "moon+fedgen": {"algorithm": "moon+fedgen", "server.aggregator": "fedavgm"},
    "int8": {"algorithm": "moon", "server.aggregator": "fedavgm", "wire.dtype": "int8"},
    "local-buffers": {
        "algorithm": "fedgen",
        "model.batch-norm-buffers": "local",
        "model.predictor-layers": 2,
        "fedgen.early-stop": 1,
        "fedgen.gen-ratio": True,
    },
    "scaffold": {"algorithm": "scaffold", "train.momentum": 0.0, "wire.dtype": "float16"},
    "feddyn": {"algorithm": "feddyn+moon", "server.weighting": "uniform"},
    "fednova": {"algorithm": "feddecorr+fednova", "wire.dtype": "int8"},
    "fedlc": {"algorithm": "fedlc", "server.aggregator": "fedadagrad"},
    "fedrs": {"algorithm": "fedntd+fedrs"},
    "private-encoders": {"algorithm": "fedgen", "model.sharing": "predictor"},
}
POINTS = [
    "server_app.rounds.phases.train",
    "server_app.rounds.playing.aggregate",
    "server_app.strategies.fedgen.fedgen.train_generator",
    "server_app.rounds.phases.evaluate_clients",
    "server_app.experiment.tracker.save_checkpoint",
    "server_app.experiment.tracker.append_line",
    "server_app.experiment.tracker.prune_checkpoints",
]


class Killed(BaseException):
    """The server is gone; nothing that handles errors may notice."""


def settings(run: str, **overrides: Any) -> dict[str, Any]:
    """Return the settings of one of ``RUNS``."""
    return BASE | RUNS[run] | overrides


def kill_at(monkeypatch: pytest.MonkeyPatch, point: str, call: int, *, after: bool) -> None:
    """Let the server die before or after the n-th call of a function."""
    module, _, name = point.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    calls = {"left": call}

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls["left"] -= 1
        if calls["left"] == 0:
            if after:
                original(*args, **kwargs)
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(point, dying)


def contents(folder: Path) -> dict[str, Any]:
    """Return all results but times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
        line["train"].pop("train-seconds", None)
    return {
        "lines": lines,
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").iterdir()),
        **{f"{name} facts": load_facts(folder / name) for name in ("best", "final")},
        "cards": [(folder / name / "README.md").read_text() for name in ("best", "final")],
    }


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """Return a saved model's state dict."""
    return load_model(folder / name, allow_private_parts=True).state_dict()


def assert_same(folder: Path, expected: Path) -> None:
    """Compare every result of two runs, weights bit for bit."""
    found, wanted = contents(folder), contents(expected)
    for facts in (*found.values(), *wanted.values()):
        if isinstance(facts, dict):
            for part in facts.values():
                if isinstance(part, dict):
                    part.pop("train-seconds", None)
    assert found == wanted
    for name in ("best", "final"):
        one, other = weights(folder, name), weights(expected, name)
        assert list(one) == list(other)
        assert all(torch.equal(one[key], other[key]) for key in one), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a run that nothing interrupted, made once."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            made[name] = run_in_process(settings(name), 3, tmp_path_factory.mktemp("steady"))
        return made[name]

    return run


def interrupt(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, call: int, *, after: bool
) -> None:
    """Start a run that dies at a point."""
    with monkeypatch.context() as patch:
        kill_at(patch, point, call, after=after)
        with pytest.raises(Killed):
            run_in_process(settings(run), 3, tmp_path)


def resume(run: str, tmp_path: Path, **overrides: Any) -> Path:
    """Go on with it."""
    return run_in_process(settings(run, resume=True, **overrides), 3, tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_any_phase_of_round_2_the_results_are_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Callable[[str], Path],
    point: str,
    after: bool,
) -> None:
    interrupt("moon+fedgen", tmp_path, monkeypatch, point, 2, after=after)
    assert_same(resume("moon+fedgen", tmp_path), undisturbed("moon+fedgen"))


def test_every_algorithm_is_among_the_runs() -> None:
    assert {part for run in RUNS.values() for part in run["algorithm"].split("+")} == {*ALGORITHMS}


@pytest.mark.parametrize("call", [1, 3])
@pytest.mark.parametrize("run", sorted(set(RUNS) - {"moon+fedgen"}))
def test_every_algorithm_goes_on_with_the_same_bits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Callable[[str], Path],
    run: str,
    call: int,
) -> None:
    interrupt(run, tmp_path, monkeypatch, "server_app.rounds.playing.aggregate", call, after=True)
    assert_same(resume(run, tmp_path), undisturbed(run))


def test_killed_again_and_again_it_still_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Callable[[str], Path]
) -> None:
    interrupt("moon+fedgen", tmp_path, monkeypatch, POINTS[0], 1, after=True)
    points = ("server_app.rounds.playing.aggregate", "server_app.experiment.tracker.append_line")
    for point in points:
        with monkeypatch.context() as patch:
            kill_at(patch, point, 1, after=False)
            with pytest.raises(Killed):
                resume("moon+fedgen", tmp_path)
    assert_same(resume("moon+fedgen", tmp_path), undisturbed("moon+fedgen"))


@pytest.mark.parametrize("run", ["moon", "scaffold"])
@pytest.mark.parametrize("keep", [2, 3])
def test_a_damaged_newest_checkpoint_costs_one_round_and_no_bit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Callable[[str], Path],
    keep: int,
    run: str,
) -> None:
    # Killed in round 3 after the clients trained: they have gone further than the server will.
    with monkeypatch.context() as patch:
        kill_at(patch, "server_app.rounds.phases.train", 3, after=True)
        with pytest.raises(Killed):
            run_in_process(settings(run, **{"server.keep-checkpoints": keep}), 3, tmp_path)
    folder = tmp_path / "moonflower" / "output" / "exp"
    (folder / "checkpoints" / "round-000002" / "model.safetensors").write_bytes(b"")
    resume(run, tmp_path)
    (aside,) = (folder / "checkpoints").glob("*.damaged-1")
    for path in aside.iterdir():
        path.unlink()
    aside.rmdir()
    assert_same(folder, undisturbed(run))


def test_more_rounds_than_at_the_start_are_played(
    tmp_path: Path, undisturbed: Callable[[str], Path]
) -> None:
    run_in_process(settings("moon+fedgen", **{"num-rounds": 2}), 3, tmp_path)
    folder = resume("moon+fedgen", tmp_path)
    assert_same(folder, undisturbed("moon+fedgen"))
    facts = json.loads((folder / "settings.json").read_text())
    assert facts["settings"]["num-rounds"] == 3
    assert len(facts["resumed"]) == 1


def test_a_resumed_run_learns_with_what_it_was_allowed_to_change(
    tmp_path: Path, undisturbed: Callable[[str], Path]
) -> None:
    run_in_process(settings("fedprox", **{"num-rounds": 2}), 3, tmp_path)
    slower = {"train.learning-rate": 0.001, "resume-changes": "train.learning-rate"}
    with pytest.raises(ResumeError, match=r"train\.learning-rate: started with 0\.05"):
        resume("fedprox", tmp_path, **slower | {"resume-changes": ""})
    folder = resume("fedprox", tmp_path, **slower)
    lines = contents(folder)["lines"]
    assert [line["scheduled"]["train.learning-rate"] for line in lines] == [0.05, 0.05, 0.001]
    steady = contents(undisturbed("fedprox"))["lines"]
    assert lines[:2] == steady[:2]
    assert lines[2]["update-norm"] < steady[2]["update-norm"] / 2


def test_an_experiment_begun_with_version_0_1_goes_on(
    tmp_path: Path, undisturbed: Callable[[str], Path]
) -> None:
    """Version 0.1 knew neither tasks nor kinds, and called what ``patience`` watches otherwise."""
    begun = run_in_process(settings("moon", **{"num-rounds": 2}), 3, tmp_path)
    facts = json.loads((begun / "settings.json").read_text())
    del facts["settings"]["task"], facts["settings"]["data"]["kind"]
    del facts["settings"]["data"]["features"]
    facts["settings"]["server"]["stop-metric"] = "global-accuracy"
    (begun / "settings.json").write_text(json.dumps(facts))
    description = json.loads((begun / "best/model.json").read_text())
    assert description["facts"]["criterion"] == "global accuracy"
    assert 0 < description["facts"]["accuracy"] <= 1
    del description["data"]["kind"], description["data"]["white"]
    (begun / "best/model.json").write_text(json.dumps(description))
    assert_same(resume("moon", tmp_path), undisturbed("moon"))


def test_a_finished_run_says_so_and_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
    before = contents(folder)
    capsys.readouterr()
    again = settings("fedavg", resume=True, **{"num-rounds": 1})
    assert run_in_process(again, 2, tmp_path) == folder
    assert "nothing is left to do: all 1 rounds have been played" in capsys.readouterr().err
    assert contents(folder) == before


def test_a_run_that_died_before_its_first_round_ended_starts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Callable[[str], Path]
) -> None:
    interrupt("fedgen", tmp_path, monkeypatch, "server_app.rounds.phases.train", 1, after=False)
    assert_same(resume("fedgen", tmp_path), undisturbed("fedgen"))


def test_a_run_that_failed_for_want_of_replies_goes_on_when_they_come(
    tmp_path: Path, undisturbed: Callable[[str], Path]
) -> None:
    faults = [Fault(node, fails("no power"), rounds={2}) for node in range(3)]
    with pytest.raises(RuntimeError, match="no power") as caught:
        run_in_process(settings("moon+fedgen"), 3, tmp_path, faults=faults)
    assert PERMANENT not in str(caught.value)
    assert_same(resume("moon+fedgen", tmp_path), undisturbed("moon+fedgen"))


def test_a_run_that_was_to_stop_at_the_first_failure_is_left_to_a_person(tmp_path: Path) -> None:
    faults = [Fault(0, fails("no disk"), rounds={2})]
    with pytest.raises(ClientFailedError, match="no disk") as caught:
        run_in_process(
            settings("fedavg", **{"server.failure-policy": "stop"}), 2, tmp_path, faults=faults
        )
    assert str(caught.value).endswith(PERMANENT)


class TestRefusals:
    """What must not be resumed is refused, with the folder as it was."""

    def test_other_settings(self, tmp_path: Path) -> None:
        folder = run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
        before = contents(folder)
        with pytest.raises(ResumeError, match=r"train\.batch-size: started with 32, now 8") as why:
            resume("fedavg", tmp_path, **{"train.batch-size": 8})
        assert str(why.value).endswith(PERMANENT)
        assert contents(folder) == before

    def test_another_number_of_simulated_clients(self, tmp_path: Path) -> None:
        folder = run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
        before = contents(folder)
        with pytest.raises(ResumeError, match=r"client-0000: \d+ examples then, \d+ now") as why:
            run_in_process(settings("fedavg", resume=True), 3, tmp_path)
        assert "num-partitions" in str(why.value)
        assert str(why.value).endswith(PERMANENT)
        assert contents(folder) == before

    def test_a_checkpoint_of_another_version_with_another_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
        monkeypatch.setitem(MODELS, "fedgen-cnn", MODELS["mlp"])
        with pytest.raises(ResumeError, match=r"round 1 is not the one(.|\n)*version") as caught:
            resume("fedavg", tmp_path)
        assert str(caught.value).endswith(PERMANENT)

    def test_an_experiment_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(NothingToResumeError, match="no experiment 'exp'"):
            resume("fedavg", tmp_path)
        assert not (tmp_path / "moonflower" / "output" / "exp").exists()

    def test_an_experiment_that_exists_without_asking_to_resume(self, tmp_path: Path) -> None:
        run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
        with pytest.raises(ExperimentExistsError, match="resume=true") as caught:
            run_in_process(settings("fedavg"), 2, tmp_path)
        assert str(caught.value).endswith(PERMANENT)

    def test_a_folder_that_another_server_works_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("server_app.experiment.resume.LOCK_SECONDS", 0.01)
        folder = run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
        with locked(folder), pytest.raises(OutputError, match="another server") as caught:
            resume("fedavg", tmp_path)
        assert PERMANENT not in str(caught.value)

    @pytest.mark.parametrize("loss", ["damage", "removal"])
    def test_an_experiment_whose_checkpoints_are_all_lost_keeps_its_metrics(
        self, tmp_path: Path, loss: str
    ) -> None:
        folder = run_in_process(settings("fedavg", **{"num-rounds": 1}), 2, tmp_path)
        before = (folder / "metrics.jsonl").read_bytes()
        if loss == "damage":
            (folder / "checkpoints" / "round-000001" / "checkpoint.json").write_bytes(b"")
        else:
            (folder / "checkpoints").rename(folder / "elsewhere")
        for _ in range(2):
            with pytest.raises(ResumeError, match="no whole checkpoint"):
                resume("fedavg", tmp_path)
        assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_full_disk_ends_the_run_with_what_to_do_and_it_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Callable[[str], Path]
) -> None:
    real, calls = os.rename, {"left": 2}

    def full(*args: Any, **kwargs: Any) -> None:
        if "round-" in str(args[0]):
            calls["left"] -= 1
            if calls["left"] == 0:
                raise OSError(28, "No space left on device")
        real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(OutputError, match=r"No space left(.|\n)*resume=true experiment=exp"):
            run_in_process(settings("fedavg"), 3, tmp_path)
    assert_same(resume("fedavg", tmp_path), undisturbed("fedavg"))

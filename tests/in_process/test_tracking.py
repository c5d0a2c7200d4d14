"""Trackers beside a run: whatever happens to them, the run's bits are the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from common.config import SettingsError
from server_app.tracking import beside
from server_app.tracking.beside import Tracking
from server_app.tracking.destination import PROMETHEUS_VARIABLE
from tests.in_process.grid import run_in_process
from tests.in_process.mlflow_server import FakeMlflow, serving
from tests.in_process.test_runs import equal, lines_of, weights_of
from tests.server_app.tracking.test_destinations import in_tensorboard

SHORT = {"num-rounds": 4, "train.local-epochs": 1, "experiment": "exp", "data.fraction": 0.3}


@pytest.fixture(autouse=True)
def no_tracker_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(beside, "END_SECONDS", 60.0)


def waiting(monkeypatch: pytest.MonkeyPatch, from_round: int) -> None:
    """Let a run wait once, from a round on, until a tracker complains."""
    honest = Tracking.complaints
    calls = []

    def complaints(self: Tracking) -> Mapping[str, str]:
        calls.append(len(calls) + 1)
        found = honest(self)
        while len(calls) == from_round and not found:
            time.sleep(0.05)
            found = honest(self)
        return found

    monkeypatch.setattr(Tracking, "complaints", complaints)


@pytest.mark.slow
def test_killing_mlflows_server_in_a_run_costs_one_alarm_and_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_in_process(SHORT, 2, tmp_path / "plain")
    waiting(monkeypatch, 3)
    fake = FakeMlflow(ends_after=1)
    with serving(fake) as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        tracked = run_in_process({**SHORT, "tracking": "mlflow"}, 2, tmp_path / "tracked")
    assert equal(weights_of(plain), weights_of(tracked))
    assert fake.steps[0] == 1
    alarms = [line["alarms"] for line in lines_of(tracked)]
    assert [len(each) for each in alarms] == [0, 0, 1, 0]
    assert "tracking to mlflow does not work" in alarms[2][0]
    assert "moonflower export" in alarms[2][0]


@pytest.mark.slow
def test_a_run_with_trackers_has_the_same_bits_and_trackers_all_of_it_also_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROMETHEUS_VARIABLE, str(tmp_path / "text"))
    tracking = {"tracking": "tensorboard, wandb"}
    plain = run_in_process(SHORT, 2, tmp_path / "plain")
    folder = run_in_process({**SHORT, **tracking, "num-rounds": 3}, 2, tmp_path / "tracked")
    assert [step for step, _ in in_tensorboard(folder)] == [1, 2, 3]
    run_in_process({**SHORT, **tracking, "resume": True}, 2, tmp_path / "tracked")
    assert equal(weights_of(plain), weights_of(folder))
    assert in_tensorboard(folder) == [
        (line["round"], pytest.approx(line["train"]["loss"])) for line in lines_of(folder)
    ]
    assert [line["alarms"] for line in lines_of(folder)] == [[], [], [], []]
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 1
    text = (tmp_path / "text" / "moonflower-exp.prom").read_text()
    assert 'moonflower_round{experiment="exp"} 4.0' in text
    assert 'moonflower_finished{experiment="exp"} 1.0' in text


@pytest.mark.parametrize(
    ("command", "seconds", "said"),
    [
        (["sleep", "100"], 61.0, "has taken nothing for 61 s"),
        (["false"], 0.0, "its process has ended with exit code 1"),
    ],
)
def test_a_tracker_that_hangs_or_dies_is_named_once_and_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    seconds: float,
    said: str,
) -> None:
    # Another program in a worker's place: it answers nothing, or ends at once.
    monkeypatch.setattr(beside, "END_SECONDS", 0.0)
    monkeypatch.setattr(beside, "worker_command", lambda _name, _folder: command)
    moment = [0.0]
    tracking = Tracking(tmp_path, ["mlflow"], now=lambda: moment[0])
    tracking.round_written()
    moment[0] += seconds
    found = tracking.complaints()
    while not found:
        found = tracking.complaints()
    assert found == {"mlflow": said if "exit" in said else f"it {said}"}
    assert tracking.complaints() == {}
    (worker,) = tracking._workers
    tracking.end()
    assert worker._process.poll() is not None, "it is left behind"


def test_a_tracker_that_cannot_be_started_is_a_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "worker_command", lambda _name, _folder: ["/nowhere/python"])
    tracking = Tracking(tmp_path, ["mlflow"])
    assert "can't be started" in tracking.complaints()["mlflow"]
    assert tracking.complaints() == {}
    tracking.end()


def test_without_trackers_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "worker_command", lambda *_: pytest.fail("started"))
    tracking = Tracking()
    tracking.round_written()
    assert tracking.complaints() == {}
    tracking.end(finished=True)


def test_a_missing_package_is_refused_before_any_node_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match="wandb needs packages that are not installed"):
        run_in_process({**SHORT, "tracking": "wandb"}, 2, tmp_path)

"""TensorBoard, MLflow and W&B hold exactly the rounds that the experiment has."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from common.config import SettingsError
from server_app.tracking.destination import Destination, Source, check_installed, make_destination
from server_app.tracking.growing_file import whole_lines
from server_app.tracking.mlflow_run import MARK
from tests.server_app.tracking.rounds import line_of, make_experiment, write_rounds

LOSSES = [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an experiment of three rounds; no tracker of the machine is used."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return make_experiment(tmp_path / "output" / "exp")


def opened(name: str, folder: Path) -> Destination:
    destination = make_destination(name, Source(folder))
    destination.open(whole_lines(folder / "metrics.jsonl"))
    return destination


def in_tensorboard(folder: Path) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("train/loss")]


def in_mlflow(folder: Path) -> list[tuple[int, float]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("moonflower")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["moon.mu"] == "2.5"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert len(client.get_metric_history(run.info.run_id, MARK)) == len(history)
    return sorted((metric.step, metric.value) for metric in history)


READ = {"tensorboard": in_tensorboard, "mlflow": in_mlflow}
TRACKERS = ["tensorboard", pytest.param("mlflow", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of MLflow's, which takes seconds to make."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def place(request: pytest.FixtureRequest, folder: Path, name: str) -> Path:
    """Return the experiment, with all that its tracker needs."""
    if name == "mlflow":
        shutil.copy(request.getfixturevalue("empty_database"), folder.parent)
    return folder


@pytest.mark.parametrize("name", TRACKERS)
def test_what_was_written_live_is_what_the_experiment_has(place: Path, name: str) -> None:
    lines = whole_lines(place / "metrics.jsonl")
    destination = make_destination(name, Source(place))
    destination.open(lines[:1])
    for line in lines[1:]:
        destination.add(line)
    destination.close(finished=True)
    assert READ[name](place) == LOSSES


@pytest.mark.parametrize("name", TRACKERS)
def test_a_run_that_goes_on_leaves_no_step_twice_and_none_out(place: Path, name: str) -> None:
    opened(name, place).close(finished=False)
    write_rounds(place, [line_of(number) for number in (1, 2, 3, 4)])
    opened(name, place).close(finished=True)
    opened(name, place).close(finished=True)
    assert READ[name](place) == [*LOSSES, (4, 0.25)]


@pytest.mark.parametrize("name", TRACKERS)
@pytest.mark.parametrize("played_again", [False, True])
def test_rounds_that_were_cut_or_played_anew_are_replaced(
    place: Path, name: str, *, played_again: bool
) -> None:
    opened(name, place).close(finished=False)
    lines = [line_of(1), line_of(2)]
    if played_again:
        lines.append(line_of(3, seconds=2.5, train={"loss": 7.0, "num-examples": 90}))
    write_rounds(place, lines)
    opened(name, place).close(finished=True)
    assert READ[name](place) == [*LOSSES[:2], *([(3, 7.0)] if played_again else [])]


@pytest.mark.slow
def test_wandb_writes_offline_into_the_experiment_and_replaces_an_earlier_run(
    folder: Path,
) -> None:
    for _ in range(2):
        opened("wandb", folder).close(finished=True)
    (run,) = (folder / "wandb").glob("offline-run-*")
    (written,) = run.glob("*.wandb")
    blob = written.read_bytes()
    assert b"train/loss" in blob
    assert b"clients/per-client/b" in blob


def test_a_tracker_that_is_not_installed_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name != "mlflow" else real(name)
    )
    check_installed(["mlflow"])
    with pytest.raises(SettingsError, match=r"tensorboard and wandb.*\[tensorboard,wandb\]"):
        check_installed(["tensorboard", "mlflow", "wandb"])


def test_without_its_settings_an_experiment_is_still_written(tmp_path: Path) -> None:
    source = Source(tmp_path / "exp")
    assert source.parameters() == {}
    assert source.experiment_id == "exp"
    assert source.begun() == 0.0

"""What can't work ends before any training, with one message that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp

from common.config import SettingsError
from common.data import DataError
from server_app.app import serve
from server_app.clients.gather import StartError
from server_app.experiment.resume import ExperimentExistsError
from tests.in_process.grid import FakeClock, InProcessGrid, run_in_process, simulated
from tests.settings import make_run_config


def attempt(fake: FakeClock, num_clients: int = 2, **overrides: Any) -> InProcessGrid:
    """Run the server on nodes that must not be reached, return their grid."""
    run_config = make_run_config(**overrides)
    grid = InProcessGrid(ClientApp(), simulated(num_clients), run_config, (), fake.clock())
    try:
        serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())
    finally:
        assert grid.sent == [], "nothing is sent before the check"
    return grid


def test_all_problems_of_the_settings_are_said_at_once_without_waiting(
    fake: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError):
        attempt(fake, **{"moon.mu": "high", "algorithm": "sgd", "num-rounds": 0, "model.nam": "x"})
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("moonflower ERROR ") for line in lines)
    text = "\n".join(lines)
    for key in ("moon.mu", "algorithm", "num-rounds", "model.nam"):
        assert key in text
    assert fake.naps == []


def test_a_missing_data_set_is_named_with_its_folder_and_the_switch(fake: FakeClock) -> None:
    overrides = {"data.source": "mnist", "model.name": "fedgen-cnn"}
    with pytest.raises(DataError, match=r"(?s)moonflower/data.*data\.download=true"):
        attempt(fake, **overrides)
    assert fake.naps == []


def test_a_model_that_does_not_fit_the_data_is_refused(fake: FakeClock) -> None:
    with pytest.raises(SettingsError, match="moon-cnn"):
        attempt(fake, **{"model.name": "moon-cnn"})


def test_too_few_nodes_are_refused_after_the_timeout(
    fake: FakeClock, capsys: pytest.CaptureFixture[str], own_folders: Path
) -> None:
    with pytest.raises(StartError, match="2 of the 3 clients"):
        attempt(fake, **{"server.min-clients": 3, "server.start-timeout": 5.0, "experiment": "x"})
    assert fake.time - 1000 == pytest.approx(5)
    assert "num-supernodes=3" in capsys.readouterr().err
    assert not (own_folders / "output" / "x").exists(), "the name stays free"


def test_an_experiment_that_exists_is_refused_before_any_waiting(
    fake: FakeClock, own_folders: Path
) -> None:
    (own_folders / "output" / "mine").mkdir(parents=True)
    with pytest.raises(ExperimentExistsError, match="'mine' exists already"):
        attempt(fake, experiment="mine")
    assert fake.naps == []


def test_more_clients_than_examples_are_refused_with_the_clients_reason(tmp_path: Path) -> None:
    overrides = {"data.fraction": 0.01, "data.partition": "iid", "experiment": "x"}
    with pytest.raises(StartError, match=r"(?s)20 of 20 clients can't take part.*20 clients"):
        run_in_process(overrides, 20, tmp_path)


def test_float16_without_a_gpu_is_refused_with_the_clients_reason(tmp_path: Path) -> None:
    overrides = {"train.precision": "float16", "experiment": "x"}
    with pytest.raises(StartError, match=r"(?s)2 of 2 clients can't take part.*needs a GPU"):
        run_in_process(overrides, 2, tmp_path)

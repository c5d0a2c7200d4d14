"""What a run leaves on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from common.data import data_spec
from common.models import SplitModel, build_model, load_facts, load_model
from common.tasks import Headline
from server_app.clients.query import Client
from server_app.experiment.resume import (
    ExperimentExistsError,
    experiment_name,
    refuse_existing,
)
from server_app.experiment.settings_file import versions
from server_app.experiment.tracker import Tracker
from server_app.report.round_report import Participation, RoundReport
from tests.settings import make_settings

SETTINGS = make_settings()
SPEC = data_spec(SETTINGS.data)


def report(server_round: int, accuracy: float | None) -> RoundReport:
    """Return a round of that global accuracy, None for a round without evaluation."""
    return RoundReport(
        server_round=server_round,
        num_rounds=9,
        headline=Headline("accuracy"),
        train={"loss": float("nan")},
        training=Participation(("a",)),
        clients=None,
        global_model=None if accuracy is None else {"accuracy": accuracy, "loss": 0.1},
        evaluating=None,
        bytes_sent=1,
        bytes_received=2,
        seconds={"total": 1.0},
    )


def model_of(value: float) -> SplitModel:
    """Return a model all of whose weights are ``value``."""
    model = build_model(SETTINGS.model, SPEC, 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def weight_in(folder: Path) -> float:
    """Return the one value of a saved model's weights."""
    return float(next(iter(load_model(folder).parameters())).detach().flatten()[0])


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    """Return a tracker that has begun."""
    tracker = Tracker(tmp_path / "output" / "exp", SETTINGS, SPEC)
    tracker.begin([Client("a", 5, (1, 2), "cpu", "{}")])
    return tracker


def test_settings_json_has_settings_versions_and_clients(tracker: Tracker) -> None:
    facts = json.loads((tracker.folder / "settings.json").read_text())
    assert facts["experiment"] == "exp"
    assert facts["settings"]["moon"]["buffer-size"] == SETTINGS.moon.buffer_size
    assert (
        facts["versions"]["torch"] == torch.__version__.split("+")[0]
        or facts["versions"]["torch"] == torch.__version__
    )
    assert facts["clients"] == [
        {
            "name": "a",
            "examples-per-label": [1, 2],
            "partition": "",
            "device": "cpu",
            "versions": "{}",
        }
    ]
    assert facts["headline"] == {"name": "accuracy", "more-is-better": True}


def test_every_round_is_one_line_of_strict_json(tracker: Tracker) -> None:
    tracker.write_round(report(1, 0.5), model_of(1.0), {})
    tracker.write_round(report(2, None), model_of(2.0), {})

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    lines = (tracker.folder / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [record["round"] for record in records] == [1, 2]
    assert records[0]["train"] == {"loss": None}


def test_best_is_the_first_of_the_most_accurate_rounds(tracker: Tracker) -> None:
    for server_round, accuracy in enumerate([0.5, 0.8, None, 0.8, 0.7], start=1):
        tracker.write_round(report(server_round, accuracy), model_of(float(server_round)), {})
    assert weight_in(tracker.folder / "best") == 2.0
    facts = load_facts(tracker.folder / "best")
    assert tracker.best is not None
    assert tracker.best.server_round == 2
    assert (facts["round"], facts["accuracy"], facts["criterion"]) == (2, 0.8, "global accuracy")


def test_final_is_the_last_model_with_its_facts(tracker: Tracker) -> None:
    tracker.write_round(report(9, 0.7), model_of(9.0), {})
    tracker.write_final(model_of(9.0))
    assert weight_in(tracker.folder / "final") == 9.0
    assert load_facts(tracker.folder / "final")["algorithm"] == SETTINGS.algorithm


def test_without_any_evaluation_there_is_no_best(tracker: Tracker) -> None:
    tracker.write_round(report(1, None), model_of(1.0), {})
    assert not (tracker.folder / "best").exists()


def test_an_experiment_that_exists_is_refused_and_kept(tracker: Tracker) -> None:
    before = (tracker.folder / "settings.json").read_bytes()
    with pytest.raises(ExperimentExistsError, match=r"'exp' exists already(.|\n)*experiment=NAME"):
        refuse_existing(tracker.folder)
    with pytest.raises(ExperimentExistsError):
        Tracker(tracker.folder, SETTINGS, SPEC).begin([])
    assert (tracker.folder / "settings.json").read_bytes() == before


def test_an_empty_name_is_made_from_algorithm_source_and_time() -> None:
    settings = make_settings(algorithm="moon+fedgen", experiment="")
    assert re.fullmatch(r"moon-fedgen-digits-\d{8}-\d{6}", experiment_name(settings))
    assert experiment_name(make_settings(experiment="mine")) == "mine"


def test_versions_name_what_a_result_depends_on() -> None:
    assert {"python", "flwr", "torch", "numpy"} <= set(versions())

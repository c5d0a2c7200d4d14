"""The reported numbers, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from flwr.app import MetricRecord
from torch import nn

from common.data import ExampleSet
from common.models import SplitModel
from common.tasks import Headline, Scores, Sums
from common.tasks.classification import Classification
from server_app.report.evaluation import (
    evaluate_global,
    summarise_clients,
    sums_of,
)

TASK = Classification(2)
A = {"num-examples": 10, "loss": 2.0, "class-correct": [9, 0], "class-total": [10, 0]}
B = {"num-examples": 40, "loss": 48.0, "class-correct": [5, 15], "class-total": [20, 20]}
NOTHING = {"num-examples": 0, "loss": 0.0, "class-correct": [0, 0], "class-total": [0, 0]}


def test_clients_are_summarised() -> None:
    summary = summarise_clients(TASK, {"b": B, "a": A, "c": NOTHING})
    assert summary is not None
    assert summary["per-client"] == {"a": 0.9, "b": 0.5}
    assert summary["mean"] == pytest.approx(0.7)
    assert summary["std"] == pytest.approx(0.2)  # sqrt((0.2^2 + 0.2^2) / 2), population
    assert summary["worst"] == {"name": "b", "accuracy": 0.5}
    assert summary["weighted"] == pytest.approx(29 / 50)
    assert summary["loss"] == pytest.approx((2 + 48) / 50)
    assert summary["examples"] == 50
    assert summary["per-class"] == [pytest.approx(14 / 30), pytest.approx(15 / 20)]


def test_of_two_worst_clients_the_first_name_is_given() -> None:
    summary = summarise_clients(TASK, {"z": B, "b": B})
    assert summary is not None
    assert summary["worst"] == {"name": "b", "accuracy": 0.5}
    assert summary["std"] == 0


def test_without_any_example_there_is_no_summary() -> None:
    assert summarise_clients(TASK, {"a": NOTHING}) is None
    assert summarise_clients(TASK, {}) is None


def test_a_label_that_nobody_has_gets_no_accuracy() -> None:
    summary = summarise_clients(TASK, {"a": A})
    assert summary is not None
    assert summary["per-class"] == [0.9, None]


def test_sums_are_read_from_the_wire_and_nothing_else() -> None:
    assert sums_of(MetricRecord({**B, "other": 1}), TASK) == B


class Signed(Classification):
    """A task whose headline is an error, undefined for a client of ten examples."""

    headline = Headline("error", more_is_better=False)

    def score(self, sums: Sums) -> Scores:
        scores = super().score(sums).values
        if scores["examples"] == 10:
            return Scores({**scores, "error": None}, {"error": "too few examples"})
        return Scores({**scores, "error": 1 - scores["accuracy"]})  # type: ignore[operator]


def test_of_an_error_the_largest_is_the_worst() -> None:
    good = {"num-examples": 20, "loss": 2.0, "class-correct": [9, 10], "class-total": [10, 10]}
    summary = summarise_clients(Signed(2), {"b": B, "g": good})
    assert summary is not None
    assert summary["worst"] == {"name": "b", "error": 0.5}
    assert summary["mean"] == pytest.approx((0.5 + 0.05) / 2)
    assert summary["weighted"] == pytest.approx(1 - 39 / 60)


def test_a_client_whose_score_is_not_defined_is_null_with_the_reason_and_in_no_mean() -> None:
    summary = summarise_clients(Signed(2), {"a": A, "b": B})
    assert summary is not None
    assert summary["per-client"] == {"a": None, "b": 0.5}
    assert summary["mean"] == 0.5
    assert summary["undefined"] == {"per-client": {"a": "too few examples"}}
    assert summary["weighted"] == pytest.approx(1 - 29 / 50)
    alone = summarise_clients(Signed(2), {"a": A})
    assert alone is not None
    assert (alone["mean"], alone["std"], alone["worst"]["error"]) == (None, None, None)
    assert alone["undefined"] == {
        "error": "too few examples",
        "per-client": alone["undefined"]["per-client"],
    }


def test_the_global_model_is_evaluated_on_the_test_set() -> None:
    # Two pixels are the logits of two labels.
    predictor = nn.Linear(2, 2, bias=False)
    predictor.weight.data = torch.eye(2)
    model = SplitModel(nn.Flatten(), predictor, 2, 2)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).reshape(3, 1, 1, 2)
    result = evaluate_global(TASK, model, ExampleSet(x, torch.tensor([0, 1, 1])))
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["per-class"] == [1.0, 0.5]
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert result["loss"] == pytest.approx((2 * right + wrong) / 3)
    assert result["examples"] == 3

"""The reported numbers, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from common.data import ExampleSet
from common.models import SplitModel
from common.tasks import Headline, Scores, Sums
from common.tasks.base import Sum
from common.tasks.classification import Classification
from common.tasks.regression import Regression
from server_app.report.evaluation import (
    evaluate_global,
    summarise_clients,
)
from tests.answered import sums_of_answers

TASK = Classification(2)


def of_two_labels(right: tuple[int, int], total: tuple[int, int], loss: float) -> dict[str, Sum]:
    """Return what is measured of ``total`` examples by label, ``right`` of them answered so."""
    labels = [0] * total[0] + [1] * total[1]
    answers = [0] * right[0] + [1] * (total[0] - right[0])
    answers += [1] * right[1] + [0] * (total[1] - right[1])
    return {**sums_of_answers(TASK, answers, labels), "loss": loss}


A = of_two_labels((9, 0), (10, 0), 2.0)
B = of_two_labels((5, 15), (20, 20), 48.0)
NOTHING = of_two_labels((0, 0), (0, 0), 0.0)


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
    assert summary["recall"] == [pytest.approx(14 / 30), pytest.approx(15 / 20)]
    assert summary["confusion-matrix"] == [[14, 16], [5, 15]]


def test_other_scores_of_each_client_have_mean_worst_and_reasons_too() -> None:
    summary = summarise_clients(TASK, {"b": B, "a": A})
    assert summary is not None
    # Answers are certain, so an example scores low or high. Of 20 times 20 pairs of b, 5 x 15 are
    # in order and 5 x 5 + 15 x 15 tied.
    auroc = (5 * 15 + (5 * 5 + 15 * 15) / 2) / 400
    assert summary["scores"] == {
        "auroc": {
            "mean": pytest.approx(auroc),
            "std": 0.0,
            "worst": {"name": "b", "auroc": pytest.approx(auroc)},
            "per-client": {"a": None, "b": pytest.approx(auroc)},
            "undefined": {"per-client": {"a": "all examples are of label 0"}},
        }
    }
    # Pooled, 14 of 30 negatives score low, and 15 of 20 positives high.
    pooled = (14 * 15 + (14 * 5 + 16 * 15) / 2) / 600
    assert summary["auroc"] == pytest.approx(pooled)


def test_another_headline_is_what_clients_are_judged_by() -> None:
    summary = summarise_clients(Classification(2, "auroc"), {"b": B, "a": A})
    assert summary is not None
    assert summary["mean"] == summary["worst"]["auroc"] == summary["per-client"]["b"]
    assert summary["undefined"]["per-client"] == {"a": "all examples are of label 0"}
    assert summary["accuracy"] == pytest.approx(29 / 50)
    assert summary["scores"]["accuracy"]["per-client"] == {"a": 0.9, "b": 0.5}


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
    assert summary["recall"] == [0.9, None]
    assert summary["undefined"]["recall"] == "there are no examples of label 1"


def test_a_score_of_a_client_that_is_no_headline_has_its_own_way_of_being_worst() -> None:
    task = Regression()
    sums = {
        name: {"loss": 4.0, "absolute-error": 2.0, "target": y, "squared-target": 1 + y * y / 2}
        for name, y in (("a", 0.0), ("b", 2.0))
    }
    summary = summarise_clients(task, {n: {"num-examples": 2, **each} for n, each in sums.items()})
    assert summary is not None
    # Both have an MAE of 1 and R2 = 1 - 4 / 1.
    assert summary["scores"]["mae"]["worst"] == {"name": "a", "mae": 1.0}
    assert summary["scores"]["r2"]["per-client"] == {"a": -3.0, "b": -3.0}


class Signed(Classification):
    """A task whose headline is an error, undefined for a client of ten examples."""

    by_client = ()

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.headline = Headline("error", more_is_better=False)

    def score(self, sums: Sums) -> Scores:
        scores = {**Classification(2).score(sums).values, "error": None}
        if scores["examples"] == 10:
            return Scores(scores, {"error": "too few examples"})
        return Scores({**scores, "error": 1 - scores["accuracy"]})  # type: ignore[operator]


def test_of_an_error_the_largest_is_the_worst() -> None:
    good = of_two_labels((9, 10), (10, 10), 2.0)
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
    assert result["recall"] == [1.0, 0.5]
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert result["loss"] == pytest.approx((2 * right + wrong) / 3)
    assert result["examples"] == 3

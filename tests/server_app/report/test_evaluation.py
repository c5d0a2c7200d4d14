"""The reported numbers, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from flwr.app import MetricRecord
from torch import nn

from common import records
from common.data import ExampleSet
from common.evaluation import Counts
from common.models import SplitModel
from server_app.report.evaluation import (
    counts_of,
    evaluate_global,
    per_class_accuracy,
    summarise_clients,
)

A = Counts(total=10, correct=9, loss=0.2, class_correct=(9, 0), class_total=(10, 0))
B = Counts(total=40, correct=20, loss=1.2, class_correct=(5, 15), class_total=(20, 20))
NOTHING = Counts(total=0, correct=0, loss=0.0, class_correct=(0, 0), class_total=(0, 0))


def test_clients_are_summarised() -> None:
    summary = summarise_clients({"b": B, "a": A, "c": NOTHING})
    assert summary is not None
    assert summary["per-client"] == {"a": 0.9, "b": 0.5}
    assert summary["mean"] == pytest.approx(0.7)
    assert summary["std"] == pytest.approx(0.2)  # sqrt((0.2^2 + 0.2^2) / 2), population
    assert summary["worst"] == {"name": "b", "accuracy": 0.5}
    assert summary["weighted"] == pytest.approx(29 / 50)
    assert summary["loss"] == pytest.approx((10 * 0.2 + 40 * 1.2) / 50)
    assert summary["examples"] == 50
    assert summary["per-class"] == [pytest.approx(14 / 30), pytest.approx(15 / 20)]


def test_of_two_worst_clients_the_first_name_is_given() -> None:
    summary = summarise_clients({"z": B, "b": B})
    assert summary is not None
    assert summary["worst"] == {"name": "b", "accuracy": 0.5}
    assert summary["std"] == 0


def test_without_any_example_there_is_no_summary() -> None:
    assert summarise_clients({"a": NOTHING}) is None
    assert summarise_clients({}) is None


def test_a_label_that_nobody_has_gets_no_accuracy() -> None:
    assert per_class_accuracy([A]) == [0.9, None]


def test_counts_are_read_from_the_wire() -> None:
    record = MetricRecord(
        {
            records.NUM_EXAMPLES: 40,
            records.CORRECT: 20,
            records.LOSS: 1.2,
            records.CLASS_CORRECT: [5, 15],
            records.CLASS_TOTAL: [20, 20],
        }
    )
    assert counts_of(record) == B


def test_the_global_model_is_evaluated_on_the_test_set() -> None:
    # Two pixels are the logits of two labels.
    predictor = nn.Linear(2, 2, bias=False)
    predictor.weight.data = torch.eye(2)
    model = SplitModel(nn.Flatten(), predictor, 2, 2)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).reshape(3, 1, 1, 2)
    result = evaluate_global(model, ExampleSet(x, torch.tensor([0, 1, 1])))
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["per-class"] == [1.0, 0.5]
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert result["loss"] == pytest.approx((2 * right + wrong) / 3)
    assert result["examples"] == 3

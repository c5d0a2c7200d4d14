"""Regression: what is learned and added up, and which sums can't be."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.tasks import add
from common.tasks.regression import Regression

TASK = Regression()


def first_column() -> SplitModel:
    """Return a model whose output is the first of two columns."""
    predictor = nn.Linear(2, 1, bias=False)
    predictor.weight.data = torch.tensor([[1.0, 0.0]])
    return SplitModel(nn.Identity(), predictor, 2, 1)


def rows(outputs: list[float], targets: list[float]) -> ExampleSet:
    """Return examples for which ``first_column`` gives these outputs."""
    x = torch.tensor([[output, 7.0] for output in outputs]).reshape(len(outputs), 2)
    return ExampleSet(x, torch.tensor(targets))


A = rows([1.0, 2.0], [1.0, 4.0])  # errors 0 and -2
B = rows([0.0], [3.0])  # error -3


@pytest.mark.parametrize("batch_size", [1, 2, 512])
def test_sums_are_errors_and_moments(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.tasks.base.BATCH_SIZE", batch_size)
    assert TASK.measure(first_column(), A) == {
        "num-examples": 2,
        "loss": 4.0,
        "absolute-error": 2.0,
        "target": 5.0,
        "squared-target": 17.0,
    }


def test_scores_of_pooled_sums_are_those_of_pooled_examples() -> None:
    pooled = add([TASK.measure(first_column(), part) for part in (A, B)])
    scores = TASK.score(pooled)
    # Targets 1, 4, 3: mean 8/3, squared deviations 25/9 + 16/9 + 1/9 = 14/3.
    assert scores.values == {
        "rmse": pytest.approx(math.sqrt(13 / 3)),
        "mae": pytest.approx(5 / 3),
        "r2": pytest.approx(1 - 13 / (14 / 3)),
        "loss": pytest.approx(13 / 3),
        "examples": 3,
    }
    assert scores.undefined == {}
    together = rows([1.0, 2.0, 0.0], [1.0, 4.0, 3.0])
    assert TASK.measure(first_column(), together) == pooled


def test_r2_of_equal_targets_is_none_with_the_reason() -> None:
    scores = TASK.score(TASK.measure(first_column(), rows([0.0, 1.0], [0.1, 0.1])))
    assert scores.values["r2"] is None
    assert scores.undefined == {"r2": "all targets are equal"}
    assert scores.values["rmse"] == pytest.approx(math.sqrt((0.01 + 0.81) / 2))


def test_scores_of_no_examples_are_none_with_the_reason() -> None:
    scores = TASK.score(TASK.measure(first_column(), rows([], [])))
    names = {"rmse", "mae", "r2", "loss"}
    assert {name for name, value in scores.values.items() if value is None} == names
    assert set(scores.undefined) == names


def test_its_answers_are_the_outputs() -> None:
    assert TASK.answers(torch.tensor([[1.5], [-2.0]])).tolist() == [1.5, -2.0]


def test_the_loss_of_a_step_is_the_mean_squared_error() -> None:
    step = TASK.forward(first_column(), Batch(A.x, A.y, torch.arange(2)))
    assert step.loss.item() == 2.0
    assert step.output.shape == (2, 1)
    assert step.loss.requires_grad


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"num-examples": 0, "loss": 0.0, "absolute-error": 0.0, "target": 0.0}, ""),
        ({"loss": -1.0}, "'loss' is -1, it can't be below 0"),
        ({"absolute-error": -2.0}, "can't be below 0"),
        # Errors of 3 in the mean over two examples have squares of at least 2 * 3^2 = 18.
        ({"absolute-error": 6.0, "loss": 17.0}, "'absolute-error' is 6 and 'loss' 17"),
        ({"absolute-error": 6.0, "loss": 18.0}, ""),
        ({"target": -6.0, "squared-target": 17.0}, "'target' is -6 and 'squared-target' 17"),
        ({"num-examples": 0}, "contradict each other"),
        ({"squared-target": 3e38, "target": 3e38}, "contradict each other"),
    ],
)
def test_sums_that_no_numbers_have_are_refused(changes: dict[str, Any], reason: str) -> None:
    found = TASK.why_not({**TASK.measure(first_column(), A), **changes})
    assert re.search(reason or "^$", found), found


def test_it_reports_what_it_says_it_does() -> None:
    assert set(TASK.measure(first_column(), A)) == {"num-examples", *TASK.sums}


@pytest.mark.parametrize(
    ("r2", "guesses"), [(-0.5, True), (0.0, True), (0.01, False), (None, False)]
)
def test_a_model_no_better_than_the_mean_is_guessing(r2: float | None, guesses: bool) -> None:
    assert bool(TASK.guessing(1.5, {"r2": r2})) is guesses


def test_other_headlines_come_first_and_know_which_way_is_better() -> None:
    for name, more in (("rmse", False), ("mae", False), ("r2", True), ("loss", False)):
        task = Regression(name)
        scores = task.score(task.measure(first_column(), A))
        assert next(iter(scores.values)) == name
        assert task.headline.more_is_better is more
    assert "no better than guessing" in Regression("r2").guessing(-0.1, {})

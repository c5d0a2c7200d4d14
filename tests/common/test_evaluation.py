"""Counting right answers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from common.data import ExampleSet
from common.evaluation import count_correct
from common.models import SplitModel


def two_pixel_model(*extra: nn.Module) -> SplitModel:
    """Return a model whose logits are the two pixels."""
    predictor = nn.Linear(2, 2, bias=False)
    predictor.weight.data = torch.eye(2)
    return SplitModel(nn.Sequential(nn.Flatten(), *extra), predictor, 2, 2)


def examples(pixels: list[list[float]], labels: list[int]) -> ExampleSet:
    """Return images of 1 x 1 x 2."""
    x = torch.tensor(pixels, dtype=torch.float32).reshape(len(labels), 1, 1, 2)
    return ExampleSet(x, torch.tensor(labels, dtype=torch.int64))


SAMPLES = examples([[1, 0], [0, 1], [1, 0], [1, 0], [0, 1]], [0, 1, 1, 0, 1])


@pytest.mark.parametrize("batch_size", [1, 2, 5, 512])
def test_counts_and_mean_loss_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    counts = count_correct(two_pixel_model(), SAMPLES, batch_size)
    assert (counts.total, counts.correct) == (5, 4)
    assert counts.class_correct == (2, 2)
    assert counts.class_total == (2, 3)
    # Cross-entropy of logits (1, 0): log(1 + e^-1) if right, log(1 + e) if wrong.
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.e)
    assert counts.loss == pytest.approx((4 * right + wrong) / 5)


def test_no_examples_give_zeros_rather_than_nan() -> None:
    counts = count_correct(two_pixel_model(), examples([], []))
    assert (counts.total, counts.correct, counts.loss) == (0, 0, 0.0)
    assert counts.class_total == (0, 0)


def test_the_model_is_in_eval_mode_inside_and_in_its_own_mode_afterwards() -> None:
    seen: list[bool] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(self.training)
            assert not torch.is_grad_enabled()
            return x

    model = two_pixel_model(Spy())
    count_correct(model.train(), SAMPLES)
    assert model.training
    count_correct(model.eval(), SAMPLES)
    assert not model.training
    assert seen == [False, False]


def test_batch_norm_statistics_are_not_touched() -> None:
    model = two_pixel_model(nn.BatchNorm1d(2)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count_correct(model, SAMPLES)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_model_of_nan_reports_a_loss_of_nan() -> None:
    model = two_pixel_model()
    model.predictor.weight.data.fill_(float("nan"))  # type: ignore[operator, union-attr]
    assert math.isnan(count_correct(model, SAMPLES).loss)

"""Classification: what is learned and counted, and which counts can't be."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.tasks.classification import Classification, level_of_guessing

TASK = Classification(2)


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
def test_counts_and_loss_do_not_depend_on_the_batch_size(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.tasks.base.BATCH_SIZE", batch_size)
    sums = TASK.measure(two_pixel_model(), SAMPLES)
    # Cross-entropy of logits (1, 0): log(1 + e^-1) if right, log(1 + e) if wrong.
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.e)
    assert sums == {
        "num-examples": 5,
        "loss": pytest.approx(4 * right + wrong),
        "class-correct": [2, 2],
        "class-total": [2, 3],
    }
    assert TASK.why_not(sums) == ""
    assert TASK.score(sums).values == {
        "accuracy": 4 / 5,
        "loss": pytest.approx((4 * right + wrong) / 5),
        "examples": 5,
        "per-class": [1.0, 2 / 3],
    }


def test_it_reports_what_it_says_it_does() -> None:
    sums = TASK.measure(two_pixel_model(), SAMPLES)
    lengths = {n: len(v) if isinstance(v, list) else None for n, v in sums.items()}
    assert lengths == {"num-examples": None, **TASK.sums}


def test_scores_of_no_examples_are_none_with_the_reason() -> None:
    sums = TASK.measure(two_pixel_model(), examples([], []))
    assert sums == {"num-examples": 0, "loss": 0.0, "class-correct": [0, 0], "class-total": [0, 0]}
    scores = TASK.score(sums)
    assert scores.values == {
        "accuracy": None,
        "loss": None,
        "examples": 0,
        "per-class": [None, None],
    }
    assert scores.undefined == dict.fromkeys(("accuracy", "loss"), "there are no examples")


def test_the_loss_of_a_step_is_the_mean_cross_entropy_of_its_logits() -> None:
    batch = Batch(
        torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]), torch.tensor([4, 2])
    )
    step = TASK.forward(two_pixel_model(), batch)
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.e)
    assert step.loss.item() == pytest.approx((right + wrong) / 2)
    assert torch.equal(step.output, batch.x)
    assert step.loss.requires_grad
    assert step.index.tolist() == [4, 2]


def test_its_answers_are_the_softmax_of_the_logits() -> None:
    # e^0 : e^ln3 is 1 : 3
    found = Classification(2).answers(torch.tensor([[0.0, math.log(3)]]))
    assert found[0].tolist() == pytest.approx([0.25, 0.75])


def test_the_model_is_in_eval_mode_inside_and_in_its_own_mode_afterwards() -> None:
    seen: list[bool] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(self.training)
            assert not torch.is_grad_enabled()
            return x

    model = two_pixel_model(Spy())
    TASK.measure(model.train(), SAMPLES)
    assert model.training
    TASK.measure(model.eval(), SAMPLES)
    assert not model.training
    assert seen == [False, False]


def test_batch_norm_statistics_are_not_touched() -> None:
    model = two_pixel_model(nn.BatchNorm1d(2)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    TASK.measure(model, SAMPLES)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_model_of_nan_reports_a_loss_of_nan() -> None:
    model = two_pixel_model()
    model.predictor.weight.data.fill_(float("nan"))  # type: ignore[operator, union-attr]
    assert math.isnan(TASK.score(TASK.measure(model, SAMPLES)).values["loss"])  # type: ignore[arg-type]


def sums(
    total: int, totals: list[float], corrects: list[float], loss: float = 5.0
) -> dict[str, Any]:
    """Return what a client might say."""
    return {"num-examples": total, "loss": loss, "class-total": totals, "class-correct": corrects}


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((10, [6, 4], [5, 2]), ""),
        ((0, [0, 0], [0, 0], 0.0), ""),
        ((10, [6, 4], [4, 6]), r"\[4, 6\] right answers of \[6, 4\]"),
        ((10, [6, 4], [8, -1]), "right answers"),
        ((10, [6.5, 3.5], [5.0, 2.0]), "right answers"),
        ((10, [6, 4], [4.5, 2.5]), "right answers"),
        ((10, [6, 4], [5, 2], 0.0), ""),
        (
            (10, [6, 4], [5, 2], -0.1),
            "losses add up to -0.1, a cross-entropy",
        ),
        ((11, [6, 4], [5, 2]), "add up to 10, but it says 11"),
    ],
)
def test_right_answers_are_no_more_than_examples_and_add_up(
    numbers: tuple[Any, ...], reason: str
) -> None:
    found = TASK.why_not(sums(*numbers))
    assert re.search(reason or "^$", found), found


def test_of_few_classes_honest_work_is_no_guessing() -> None:
    assert level_of_guessing(2) == 0.6
    assert level_of_guessing(3) == 0.5
    assert level_of_guessing(100) == pytest.approx(0.015)
    assert TASK.guessing(0.61, {}) == ""
    assert TASK.guessing(0.6, {}) == "0.600, hardly more than guessing among 2 classes"

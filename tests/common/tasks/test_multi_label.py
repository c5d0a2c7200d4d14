"""Multi-label: sums and scores derived by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from common.config import SettingsError
from common.data import Batch, DataError, ExampleSet
from common.data.targets import LabelSets
from common.models import SplitModel
from common.tasks import add
from common.tasks.multi_label import MultiLabel

# Four examples, two labels; the model gives back its input as logits.
LOGITS = torch.tensor([[2.0, -1.0], [1.0, 3.0], [-1.0, 0.5], [-2.0, -3.0]])
Y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
TASK = MultiLabel(2)


def model() -> SplitModel:
    return SplitModel(nn.Identity(), nn.Identity(), 2, 2)


def measured(logits: torch.Tensor = LOGITS, y: torch.Tensor = Y) -> dict[str, Any]:
    return dict(TASK.measure(model(), ExampleSet(logits, y)))


def cross_entropy(logit: float, label: float) -> float:
    return math.log1p(math.exp(-logit if label else logit))


def test_sums_count_by_label() -> None:
    sums = measured()
    assert sums["num-examples"] == 4
    # Said (logit above 0): label 0 of examples 0 and 1, label 1 of examples 1 and 2.
    assert sums["label-total"] == [2, 1]
    assert sums["label-predicted"] == [2, 2]
    assert sums["label-correct"] == [1, 1]
    assert sums["right-answers"] == 8 - 3  # wrong: example 1 label 0, example 2 both
    each = [
        cross_entropy(logit, label)
        for logit, label in zip(LOGITS.flatten().tolist(), Y.flatten().tolist(), strict=True)
    ]
    assert sums["loss"] == pytest.approx(sum(each) / 2, rel=1e-6)
    assert TASK.why_not(sums) == ""


def test_scores_are_means_over_labels() -> None:
    scores = TASK.score(measured()).values
    # Label 0: with it 2, -1; without it 1, -2: of four pairs (2,1) (2,-2) (-1,-2) are right.
    # Label 1: with it 3, above all others.
    assert scores["auroc-per-label"] == pytest.approx([0.75, 1.0])
    assert scores["auroc"] == pytest.approx(0.875)
    assert scores["f1"] == pytest.approx([2 * 1 / (2 + 2), 2 * 1 / (1 + 2)])
    assert scores["macro-f1"] == pytest.approx((0.5 + 2 / 3) / 2)
    assert scores["accuracy"] == pytest.approx(5 / 8)
    assert scores["recall"] == pytest.approx([0.5, 1.0])
    assert scores["precision"] == pytest.approx([0.5, 0.5])
    brier = ((LOGITS.sigmoid() - Y) ** 2).mean().item()
    assert scores["brier"] == pytest.approx(brier, rel=1e-5)


def test_sums_of_parts_are_those_of_the_whole() -> None:
    parts = [measured(LOGITS[:1], Y[:1]), measured(LOGITS[1:], Y[1:])]
    found, whole = TASK.score(add(parts)).values, TASK.score(measured()).values
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        assert found[name] == pytest.approx(value), name


def test_a_label_that_all_or_none_have_has_no_auroc_and_the_reason() -> None:
    y = Y.clone()
    y[:, 1] = 0
    scores = TASK.score(measured(y=y))
    assert scores.values["auroc-per-label"] == [pytest.approx(0.75), None]
    assert scores.values["auroc"] == pytest.approx(0.75)
    assert "1" in scores.undefined["auroc-per-label"]
    nothing = TASK.score(measured(LOGITS[:0], Y[:0]))
    assert nothing.values["auroc"] is None
    assert nothing.undefined["auroc"] == "there are no examples"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"loss": -1.0}, "at least 0"),
        ({"brier": 5.0}, "allowed is 0 to 4"),
        ({"label-correct": [3, 1]}, "right of"),
        ({"label-predicted": [2, 5]}, "said to"),
        ({"right-answers": 6}, "they are 5"),
        ({"label-total": [1, 2], "right-answers": 5}, "contradict"),
    ],
)
def test_sums_that_can_not_be_are_refused(change: dict[str, Any], reason: str) -> None:
    assert reason in TASK.why_not({**measured(), **change})


def test_the_loss_is_the_mean_binary_cross_entropy_and_weights_count_those_that_have_a_label() -> (
    None
):
    batch = Batch(LOGITS, Y, torch.arange(4))
    pairs = zip(LOGITS.flatten().tolist(), Y.flatten().tolist(), strict=True)
    each = torch.tensor([cross_entropy(logit, label) for logit, label in pairs]).view(4, 2)
    torch.testing.assert_close(TASK.forward(model(), batch).loss, each.mean())
    weights = 1 + Y * (torch.tensor([3.0, 5.0]) - 1)
    weighted = MultiLabel(2, weights=[3.0, 5.0]).forward(model(), batch).loss
    torch.testing.assert_close(weighted, (weights * each).mean())


def test_a_headline_that_so_many_labels_do_not_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="macro-f1"):
        MultiLabel(1000, "auroc")


def test_sets_of_labels_are_checked() -> None:
    targets = LabelSets(2)
    targets.check(Y.numpy(), "here")
    with pytest.raises(DataError, match=r"data\.num-labels is 3"):
        LabelSets(3).check(Y.numpy(), "here")
    with pytest.raises(DataError, match=r"0\.5 at row 1, label 0"):
        targets.check(np.array([[0, 1], [0.5, 1]]), "here")
    # The first label of each, and a group for none.
    assert targets.groups_of(Y.numpy()).tolist() == [0, 1, 0, 2]

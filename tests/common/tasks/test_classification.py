"""Classification: what is learned and counted, and which counts can't be."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flwr.app import RecordDict
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    roc_auc_score,
)
from torch import Tensor, nn

from common.config import SettingsError
from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.packed import PackedError, pack
from common.tasks import add, put_sums, sums_of
from common.tasks.classification import NO_EXAMPLES, Classification, level_of_guessing
from tests.answered import sums_of_answers, sums_of_logits

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
    p, q = math.e / (1 + math.e), 1 / (1 + math.e)  # of the two labels
    short = {name: value for name, value in sums.items() if name not in TASK.counts}
    bins = [0.0] * 10 + [5 * p] + [0.0] * 4  # 0.731 is between 10/15 and 11/15
    assert short == {
        "num-examples": 5,
        "loss": pytest.approx(4 * right + wrong),
        "brier": pytest.approx(4 * 2 * q**2 + 2 * p**2),
        "class-correct": [2, 2],
        "class-total": [2, 3],
        "class-predicted": [3, 2],
        "calibration-confidence": pytest.approx(bins),
        "calibration-correct": [0] * 10 + [4] + [0] * 4,
        "calibration-examples": [0] * 10 + [5] + [0] * 4,
    }
    assert TASK.why_not(sums) == ""
    scores = TASK.score(sums)
    assert scores.undefined == {}
    assert scores.values == {
        "accuracy": 4 / 5,
        "balanced-accuracy": pytest.approx((1 + 2 / 3) / 2),
        # F1 of label 0: 2 * 2 / (2 + 3), of label 1: 2 * 2 / (3 + 2)
        "macro-f1": pytest.approx(4 / 5),
        "loss": pytest.approx((4 * right + wrong) / 5),
        "examples": 5,
        "recall": [1.0, 2 / 3],
        "precision": [2 / 3, 1.0],
        "confusion-matrix": [[2, 0], [1, 2]],
        # 2 x 3 pairs: both negatives score low, and of the positives two high and one low.
        "auroc": pytest.approx((2 * 2 + 2 * 1 / 2) / 6),
        # From the top: 2 of 2, then 3 of 5.
        "auprc": pytest.approx((2 * 1 + 3 / 5) / 3),
        "sensitivity": pytest.approx(2 / 3),
        "brier": pytest.approx((4 * q**2 + p**2) / 5),
        "calibration-error": pytest.approx(4 / 5 - p),
        "calibration": [{"confidence": round(p, 6), "accuracy": 0.8, "examples": 5}],
    }
    assert next(iter(scores.values)) == "accuracy"


def test_it_reports_what_it_says_it_does() -> None:
    sums = TASK.measure(two_pixel_model(), SAMPLES)
    lengths = {n: None if isinstance(v, int | float) else len(v) for n, v in sums.items()}
    assert lengths == {"num-examples": None, **TASK.sums, **TASK.counts}
    assert TASK.counts == {"confusion": 4, "score-positive": 16_384, "score-negative": 16_384}


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_what_travels_is_what_was_measured(classes: int) -> None:
    task = Classification(classes)
    random = torch.Generator().manual_seed(classes)
    logits = 3 * torch.randn(50, classes, generator=random)
    labels = torch.randint(0, classes, (50,), generator=random)
    sums = sums_of_logits(task, logits.tolist(), labels.tolist())
    content = RecordDict()
    put_sums(content, sums, task)
    put_sums(content, sums_of_answers(task, [1], [1]), task, "personal-")
    assert task.why_not(sums) == ""
    assert task.score(sums_of(content, task)) == task.score(sums)
    assert sums_of(content, task, "personal-")["num-examples"] == 1
    # As before version 0.2, to the bit.
    assert sums["loss"] == F.cross_entropy(logits, labels, reduction="sum").double().item()
    assert task.score(sums).values["accuracy"] == (logits.argmax(1) == labels).sum().item() / 50
    content["sums"]["confusion"] = b""
    with pytest.raises(PackedError, match="packed whole numbers were expected"):
        sums_of(content, task)
    del content["sums"]["confusion"]
    with pytest.raises(PackedError, match="does it run the same version"):
        sums_of(content, task)


def test_scores_of_no_examples_are_none_with_the_reason() -> None:
    sums = TASK.measure(two_pixel_model(), examples([], []))
    assert TASK.why_not(sums) == ""
    scores = TASK.score(sums)
    known = {"examples": 0, "recall": [None] * 2, "precision": [None] * 2}
    known |= {"confusion-matrix": [[0, 0], [0, 0]]}
    assert {n: v for n, v in scores.values.items() if v is not None} == known
    reasons = dict.fromkeys(scores.values.keys() - {"examples", "confusion-matrix"}, NO_EXAMPLES)
    assert scores.undefined == reasons


def test_with_one_label_there_is_no_ranking_and_the_rest_is_defined() -> None:
    scores = TASK.score(sums_of_answers(TASK, [0, 1, 0], [0, 0, 0]))
    for name in ("auroc", "auprc", "sensitivity"):
        assert scores.values[name] is None
        assert scores.undefined[name] == "all examples are of label 0"
    assert scores.undefined["recall"] == "there are no examples of label 1"
    assert scores.values["balanced-accuracy"] == pytest.approx(2 / 3)


def test_a_label_without_examples_or_predictions_has_no_score_and_is_in_no_mean() -> None:
    task = Classification(4)
    # Label 3 is neither there nor predicted; label 2 is there and never predicted.
    scores = task.score(sums_of_answers(task, [0, 0, 1, 1], [0, 1, 1, 2]))
    assert scores.values["recall"] == [1.0, 0.5, 0.0, None]
    assert scores.values["precision"] == [0.5, 0.5, None, None]
    assert scores.undefined["precision"] == "there are no predictions of label 2, 3"
    assert scores.values["balanced-accuracy"] == pytest.approx(1.5 / 3)
    # F1: 2 / (1 + 2), 2 / (2 + 2), 0 / (1 + 0), and none of label 3
    assert scores.values["macro-f1"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    per_class = scores.values["auroc-per-class"]
    assert isinstance(per_class, list)
    # Of label 0: its one example scores high, as one of three others does.
    assert per_class[0] == pytest.approx((2 + 1 / 2) / 3, abs=1e-6)
    assert per_class[3] is None
    assert scores.undefined["auroc-per-class"] == "there are no examples of label 3"
    mean = sum(each for each in per_class if each is not None) / 3
    assert scores.values["auroc"] == pytest.approx(mean, abs=1e-6)


def test_scores_of_pooled_sums_are_those_of_pooled_examples() -> None:
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(400, 3, generator=random)
    labels = torch.randint(0, 3, (400,), generator=random)
    logits[torch.arange(400), labels] += 1
    task = Classification(3)
    parts = [(0, 7), (7, 150), (150, 400)]
    pooled = add(
        [sums_of_logits(task, logits[a:b].tolist(), labels[a:b].tolist()) for a, b in parts]
    )
    values = task.score(pooled).values
    whole = task.score(sums_of_logits(task, logits.tolist(), labels.tolist())).values
    assert values == {
        name: pytest.approx(each) if isinstance(each, float) else each
        for name, each in whole.items()
    }
    p, y, said = logits.double().softmax(1).numpy(), labels.numpy(), logits.argmax(1).numpy()
    assert values["auroc"] == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), abs=2e-3)
    assert values["macro-f1"] == pytest.approx(f1_score(y, said, average="macro"))
    assert values["balanced-accuracy"] == pytest.approx(balanced_accuracy_score(y, said))
    assert values["confusion-matrix"] == confusion_matrix(y, said).tolist()
    assert values["brier"] == pytest.approx(((p - np.eye(3)[y]) ** 2).sum(axis=1).mean(), rel=1e-5)


def test_the_brier_score_of_two_labels_is_scikit_learns() -> None:
    logits, labels = [[0.0, 2.0], [0.0, -1.0], [0.0, 0.5]], [1, 0, 0]
    p = 1 / (1 + np.exp(-np.array([2.0, -1.0, 0.5])))
    scores = TASK.score(sums_of_logits(TASK, logits, labels)).values
    assert scores["brier"] == pytest.approx(brier_score_loss(labels, p))


def test_of_many_classes_the_largest_confusions_are_shown_in_place_of_the_matrix() -> None:
    task = Classification(40)
    scores = task.score(sums_of_answers(task, [5, 5, 7, 9], [4, 4, 7, 8]))
    assert scores.values["confusion-matrix"] is None
    assert scores.undefined["confusion-matrix"] == "shown up to 30 classes: see 'confusions'"
    assert scores.values["confusions"] == [
        {"label": 4, "predicted": 5, "examples": 2},
        {"label": 8, "predicted": 9, "examples": 1},
    ]


def test_a_hundred_classes_fit_an_evaluation_reply_and_more_are_counted_only() -> None:
    task = Classification(100)
    random = np.random.default_rng(0)
    # As many examples as numbers, so that hardly anything can be compressed.
    counts = {name: random.integers(0, 200, size) for name, size in task.counts.items()}
    assert sum(len(pack(each)) for each in counts.values()) < 400_000
    huge = Classification(129)
    assert huge.counts == {}
    sums = sums_of_answers(huge, [0, 1], [0, 2])
    assert huge.why_not(sums) == ""
    scores = huge.score(sums)
    assert scores.values["accuracy"] == 0.5
    assert scores.undefined["auroc"] == "measured up to 128 classes"
    with pytest.raises(SettingsError, match=r"task\.headline 'auroc' is measured up to 128"):
        Classification(129, "auroc")


@pytest.mark.parametrize(
    ("headline", "better", "worse"),
    [("accuracy", 0.6, 0.5), ("auroc", 0.6, 0.5), ("brier", 0.1, 0.2), ("loss", 1.0, 2.0)],
)
def test_the_headline_comes_first_and_knows_which_way_is_better(
    headline: str, better: float, worse: float
) -> None:
    task = Classification(2, headline)
    scores = task.score(TASK.measure(two_pixel_model(), SAMPLES))
    assert next(iter(scores.values)) == headline
    assert task.headline.better(better, worse)
    assert not task.headline.better(worse, better)


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
    scores = TASK.score(TASK.measure(model, SAMPLES))
    assert math.isnan(scores.values["loss"])  # type: ignore[arg-type]
    assert scores.values["auroc"] is scores.values["brier"] is None
    assert scores.undefined["auroc"] == "the model's outputs are not finite"


# Ten examples: 6 of label 0, 4 of label 1; 5 and 2 of them are right.
CLAIM = sums_of_answers(TASK, [0, 0, 0, 0, 0, 1, 1, 1, 0, 0], [0] * 6 + [1] * 4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"loss": 0.0}, ""),
        ({"loss": -0.1}, "losses add up to -0.1, a cross-entropy"),
        ({"brier": -0.1}, "'brier' is -0.1, allowed is 0 to twice 10"),
        ({"brier": 21.0}, "'brier' is 21"),
        ({"class-correct": [7, 0]}, r"\[7, 0\] right answers of \[6, 4\]"),
        ({"class-correct": [8, -1]}, "right answers"),
        ({"class-correct": [4.5, 2.5]}, "right answers"),
        ({"class-total": [6.5, 3.5]}, "right answers"),
        ({"class-predicted": [4, 6]}, "right answers"),
        ({"num-examples": 11}, "examples per label add up to 10, but it says 11"),
        ({"class-predicted": [7, 4]}, "predictions per label add up to 11, but it says 10"),
        ({"class-predicted": [6, 4]}, "confusion matrix contradicts"),
        ({"class-correct": [5, 1]}, "calibration bins hold 7 right answers of 10"),
        ({"calibration-examples": [0] * 14 + [9]}, "calibration bins hold 7 .* of 9"),
        ({"calibration-correct": [0] * 13 + [7, 0]}, "7 right answers of 0 examples in .* bin 13"),
        ({"calibration-confidence": [0.0] * 14 + [9.0]}, "in calibration bin 14 add up to 9"),
        ({"calibration-confidence": [0.0] * 14 + [11.0]}, "in calibration bin 14 add up to 11"),
        ({"confusion": np.array([5, 1, 2, 3])}, "confusion matrix contradicts"),
        ({"score-positive": CLAIM["score-negative"]}, "histograms of scores contradict"),
        ({"score-negative": 2 * CLAIM["score-negative"]}, "histograms of scores contradict"),
    ],
)
def test_sums_that_contradict_each_other_are_refused(changes: dict[str, Any], reason: str) -> None:
    found = TASK.why_not({**CLAIM, **changes})
    assert re.search(reason or "^$", found), found


def test_of_few_classes_honest_work_is_no_guessing() -> None:
    assert level_of_guessing(2) == 0.6
    assert level_of_guessing(3) == 0.5
    assert level_of_guessing(100) == pytest.approx(0.015)
    assert TASK.guessing(0.61, {}) == ""
    assert TASK.guessing(0.6, {}) == "0.600, hardly more than guessing among 2 classes"


def test_guessing_is_told_by_the_headline_or_else_by_the_accuracy() -> None:
    assert "0.540, hardly more" in Classification(2, "auroc").guessing(0.54, {})
    assert Classification(2, "auroc").guessing(0.56, {}) == ""
    by_error = Classification(2, "brier")
    assert "0.250 (accuracy 0.510)" in by_error.guessing(0.25, {"accuracy": 0.51})
    assert by_error.guessing(0.25, {"accuracy": 0.7}) == ""
    assert by_error.guessing(0.25, {}) == ""

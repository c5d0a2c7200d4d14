"""AUROC, AUPRC and sensitivity from histograms, by hand and next to scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from common.tasks.threshold_curves import (
    LARGEST_LOG_ODDS,
    auprc,
    auroc,
    bin_of,
    bins_for,
    one_versus_rest,
    sensitivity,
)


def counts(*bins: int) -> NDArray[np.int64]:
    """Return a histogram."""
    return np.array(bins, dtype=np.int64)


def test_auroc_is_the_part_of_pairs_in_order_with_half_of_the_ties() -> None:
    # 2 x 3 pairs: of the positive in bin 1, 1 negative is below and 1 tied; of that in bin 2 all.
    assert auroc(counts(0, 1, 1), counts(1, 1, 1)) == pytest.approx((1.5 + 2.5) / 6)


def test_auprc_is_the_mean_precision_at_the_positives() -> None:
    # From the top: 1 of 1 right, then 2 of 4.
    assert auprc(counts(0, 1, 1), counts(3, 2, 0)) == pytest.approx((1 + 2 / 4) / 2)


def test_sensitivity_is_that_of_the_lowest_threshold_that_keeps_the_specificity() -> None:
    positive, negative = counts(1, 2, 3), counts(8, 1, 1)
    # Above bin 1: 3 of 6 positives, 1 of 10 negatives; above bin 0: 5 of 6, 2 of 10.
    assert sensitivity(positive, negative, 0.9) == pytest.approx(3 / 6)
    assert sensitivity(positive, negative, 0.8) == pytest.approx(5 / 6)
    assert sensitivity(positive, negative, 0.95) == 0.0


def test_without_positives_or_negatives_there_is_no_curve() -> None:
    for positive, negative in ((counts(0, 0), counts(1, 2)), (counts(1, 2), counts(0, 0))):
        assert math.isnan(auroc(positive, negative))
        assert math.isnan(auprc(positive, negative))
        assert math.isnan(sensitivity(positive, negative, 0.9))


def test_log_odds_keep_their_digits_where_a_model_is_sure() -> None:
    logits = torch.tensor([[40.0, 0.0, 0.0], [0.0, 1.0, 2.0]])
    found = one_versus_rest(logits.log_softmax(dim=1), logits.argmax(dim=1))
    # e^40 against 1 + 1: log-odds of 40 - log 2, though the probability is 1 in float32.
    assert found[0, 0].item() == pytest.approx(40 - math.log(2))
    assert found[0, 1].item() == pytest.approx(-40, abs=1e-4)
    assert found[1, 1].item() == pytest.approx(1 - math.log(1 + math.exp(2)), abs=1e-5)
    assert found[1, 2].item() == pytest.approx(2 - math.log(1 + math.e), abs=1e-5)


def test_bins_ascend_with_the_score_and_take_whatever_comes() -> None:
    inf = float("inf")
    scores = torch.tensor([-inf, -LARGEST_LOG_ODDS, -1.0, 0.0, 0.001, 1.0, LARGEST_LOG_ODDS, inf])
    places = bin_of(scores, 16_384).tolist()
    assert places == sorted(places)
    assert len(set(places[1:7])) == 6
    assert (places[0], places[-1]) == (0, 16_383)
    assert bin_of(torch.tensor([float("nan")]), 16_384).tolist() == [0]
    assert [bins_for(n) for n in (1, 10, 100)] == [16_384, 3276, 512]


def random_case(random: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Return log-odds, labels and the number of rankings that share the bins."""
    rankings = int(random.choice([1, 3, 10]))
    n = int(np.exp(random.uniform(np.log(100), np.log(3000))))
    labels = (random.random(n) < random.uniform(0.1, 0.9)).astype(np.int64)
    labels[:10], labels[10:20] = 0, 1
    scores = random.normal(size=n) + random.uniform(-0.5, 3) * labels
    # Badly calibrated: much too sure, or all much alike around some base rate.
    scores = scores * np.exp(random.uniform(-1.5, 2)) + random.uniform(-2, 2)
    if random.random() < 0.3:  # heavily tied
        scores = np.round(scores, int(random.integers(0, 2)))
    if random.random() < 0.2:  # as probabilities of few digits give them
        p = np.round(1 / (1 + np.exp(-scores)), 2).clip(0.001, 0.999)
        scores = np.log(p) - np.log(1 - p)
    return scores.astype(np.float32), labels, rankings


@pytest.mark.parametrize("cases", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_cases_are_within_their_bounds_of_scikit_learn(cases: int) -> None:
    random = np.random.default_rng(13)
    errors, precisions, below = [], [], []
    for _ in range(cases):
        scores, labels, rankings = random_case(random)
        bins = bins_for(rankings)
        place = bin_of(torch.from_numpy(scores), bins).numpy()
        positive, negative = (
            np.bincount(place[labels == label], minlength=bins) for label in (1, 0)
        )
        exact = roc_auc_score(labels, scores)
        error = abs(float(auroc(positive, negative)) - exact)
        pairs = labels.sum() * (len(labels) - labels.sum())
        assert error <= (positive * negative).sum() / 2 / pairs + 1e-12
        errors.append(error)
        precise = average_precision_score(labels, scores)
        precisions.append(abs(float(auprc(positive, negative)) - precise))
        fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
        reached = tpr[fpr <= 0.1 + 1e-9].max()
        below.append(reached - float(sensitivity(positive, negative, 0.9)))
    assert max(errors) < 0.005
    assert max(precisions) < 0.01
    assert min(below) > -1e-9
    assert np.mean(below) < 0.005

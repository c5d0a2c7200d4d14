"""Scores of a ranking (AUROC, AUPRC, sensitivity) from histograms that add up over clients.

A score is binned by its log-odds. Only examples in one bin can't be told apart: they count as
ties, as equal scores do. So the AUROC misses the exact one by at most half of the pairs (of a
positive and a negative example) that share a bin:

    |error| <= 1/2 sum_b positives_b negatives_b / (positives negatives)

which is what true ties would cost at worst; of the pairs that share a bin about half are in the
right order, so that the error is a small part of the bound. Bins are of equal width in asinh of
the log-odds: narrow where models hesitate, and wide where one is sure of itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Counts = NDArray[np.int64]
Values = NDArray[np.float64]

LARGEST_LOG_ODDS = 104.0
"""Beyond it all scores are in the last bin: the probability ``e^-104`` is zero in float32."""

AUROC_OF_GUESSING = 0.55
"""Guessing has 0.5; a small test set may give a little more by chance."""

MOST_BINS, FEWEST_BINS, NUMBERS = 16_384, 512, 32_768
"""Limits of :func:`bins_for`; about so many numbers are in one histogram of all classes."""


def bins_for(rankings: int) -> int:
    """Return how many bins each of so many rankings gets: 16,384 for one, 512 for 64 or more.

    With one ranking a bin is 0.0007 wide at log-odds of 0 (a probability of 0.5), and 0.7% of the
    log-odds far from it; with ten 0.003 and 0.3%; with 100 0.02 and 2%.
    """
    return min(MOST_BINS, max(FEWEST_BINS, NUMBERS // rankings))


def one_versus_rest(log_probabilities: Tensor, largest: Tensor) -> Tensor:
    """Return the log-odds of each class against all others, log p - log(1 - p).

    Without loss of digits where p is near 1: 1 - p of the most likely class is added up from the
    other classes.

    Parameters
    ----------
    log_probabilities : Tensor
        Float ``[n, classes]``, of ``log_softmax``.
    largest : Tensor
        Int64 ``[n]``, the class with the largest one.

    Returns
    -------
    Tensor
        Float ``[n, classes]``; may be infinite.
    """
    top = largest.unsqueeze(1)
    others = log_probabilities.exp().scatter(1, top, 0.0)
    log_rest = torch.log1p(-others).scatter(1, top, others.sum(dim=1, keepdim=True).log())
    return log_probabilities - log_rest


def bin_of(log_odds: Tensor, bins: int) -> Tensor:
    """Return the bin of each score, int64 from 0 to ``bins - 1``; NaN is in the first."""
    end = math.asinh(LARGEST_LOG_ODDS)
    place = torch.asinh(log_odds.nan_to_num(-math.inf, math.inf, -math.inf))
    return ((place + end) * (bins / (2 * end))).clamp(0, bins - 1).long()


def auroc(positive: Counts, negative: Counts) -> Values:
    """Return the area under the ROC curve, the part of (positive, negative) pairs in order.

    Parameters
    ----------
    positive, negative : ndarray of int64
        ``[..., bins]``, examples by bin, ascending.

    Returns
    -------
    ndarray of float64
        ``[...]`` in [0, 1]; NaN without a positive or without a negative example.
    """
    p, n = positive.astype(np.float64), negative.astype(np.float64)
    below = np.cumsum(n, axis=-1) - n / 2
    return _ratio((p * below).sum(axis=-1), p.sum(axis=-1) * n.sum(axis=-1))


def auprc(positive: Counts, negative: Counts) -> Values:
    """Return the average precision, sum_k (R_k - R_{k-1}) P_k over descending thresholds.

    As scikit-learn's ``average_precision_score`` of scores that are equal within a bin.

    Parameters
    ----------
    positive, negative : ndarray of int64
        ``[..., bins]``, examples by bin, ascending.

    Returns
    -------
    ndarray of float64
        ``[...]`` in [0, 1]; NaN without a positive or without a negative example.
    """
    p = positive[..., ::-1].astype(np.float64)
    n = negative[..., ::-1].astype(np.float64)
    hits = np.cumsum(p, axis=-1)
    predicted = hits + np.cumsum(n, axis=-1)
    total = np.where(n.sum(axis=-1) > 0, p.sum(axis=-1), 0.0)
    return _ratio((p * hits / np.maximum(predicted, 1)).sum(axis=-1), total)


def sensitivity(positive: Counts, negative: Counts, specificity: float) -> Values:
    """Return the largest part of positives above a threshold that keeps a specificity.

    Thresholds lie between bins, so it is no more than what single scores would give.

    Parameters
    ----------
    positive, negative : ndarray of int64
        ``[..., bins]``, examples by bin, ascending.
    specificity : float
        In (0, 1): the least part of the negatives that has to lie below the threshold.

    Returns
    -------
    ndarray of float64
        ``[...]`` in [0, 1]; NaN without a positive or without a negative example.
    """
    p = positive[..., ::-1].astype(np.float64)
    n = negative[..., ::-1].astype(np.float64)
    all_negative = n.sum(axis=-1)
    # 1 - 0.9 is a little less than 0.1: a tenth of ten examples may lie above.
    allowed = np.floor((1 - specificity) * all_negative + 1e-6)[..., None]
    hits = np.where(np.cumsum(n, axis=-1) <= allowed, np.cumsum(p, axis=-1), 0.0)
    total = np.where(all_negative > 0, p.sum(axis=-1), 0.0)
    return _ratio(hits.max(axis=-1), total)


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Values:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan), dtype=np.float64)

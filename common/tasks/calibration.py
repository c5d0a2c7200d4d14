"""How far confidence can be trusted: expected calibration error from sums that add up."""

from __future__ import annotations

import math
from collections.abc import Sequence

BINS = 15
"""Of equal width in [0, 1], as in Guo et al., *On Calibration of Modern Neural Networks*, ICML
2017; bin k holds confidences from k/15 up to, but without, (k + 1)/15, the last one also 1."""

ROUNDING = 1e-4
"""By how much of a bin's examples a sum of float32 confidences may miss its bounds."""


def why_not(
    confidence: Sequence[float], correct: Sequence[float], examples: Sequence[float]
) -> str:
    """Return why these can't be the sums of bins, or "".

    Parameters
    ----------
    confidence, correct, examples : Sequence[float]
        By bin: sum of confidences, right answers, examples.
    """
    for k, (total, right, n) in enumerate(zip(confidence, correct, examples, strict=True)):
        if n != int(n) or right != int(right) or not 0 <= right <= n:
            return f"it counts {right:g} right answers of {n:g} examples in calibration bin {k}"
        slack = n * ROUNDING
        if not n * k / BINS - slack <= total <= n * (k + 1) / BINS + slack:
            return (
                f"its confidences in calibration bin {k} add up to {total:g}, which {n:g} between "
                f"{k / BINS:.3f} and {(k + 1) / BINS:.3f} don't"
            )
    return ""


def calibration_error(
    confidence: Sequence[float], correct: Sequence[float], examples: Sequence[float]
) -> float:
    """Return the expected calibration error, in [0, 1], of at least one example.

    ``sum_k n_k/n |accuracy_k - confidence_k|`` (Guo et al., Eq. 3).
    """
    gaps = (abs(right - total) for total, right in zip(confidence, correct, strict=True))
    return math.fsum(gaps) / math.fsum(examples)


def bins_with_examples(
    confidence: Sequence[float], correct: Sequence[float], examples: Sequence[float]
) -> list[dict[str, float]]:
    """Return ``confidence``, ``accuracy`` and ``examples`` of each bin that has any, ascending."""
    return [
        {"confidence": round(total / n, 6), "accuracy": round(right / n, 6), "examples": n}
        for total, right, n in zip(confidence, correct, examples, strict=True)
        if n
    ]

"""Scores of predicted labels, from counts by label that add up over clients.

Of each label: ``total`` examples have it, ``predicted`` got it from the model, and ``correct``
are both. All are float64 ``[labels]``; a score of a label that is not defined is NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def recall(correct: Values, total: Values) -> Values:
    """Return the part of each label's examples that got it; NaN for a label without examples."""
    return _ratio(correct, total)


def precision(correct: Values, predicted: Values) -> Values:
    """Return the part of each label's predictions that are right; NaN where never predicted."""
    return _ratio(correct, predicted)


def f1(correct: Values, total: Values, predicted: Values) -> Values:
    """Return 2 correct / (total + predicted), the harmonic mean of precision and recall.

    NaN for a label that no example has and no prediction is.
    """
    return _ratio(2 * correct, total + predicted)


def mean_of_defined(values: Values) -> float | None:
    """Return the mean of those that are defined; None if none is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else None


def as_list(values: Values, digits: int | None = None) -> list[float | None]:
    """Return the values for JSON, None for one that is not defined."""
    listed = (None if np.isnan(value) else float(value) for value in values)
    return [v if v is None or digits is None else round(v, digits) for v in listed]


def of_labels(what: str, values: Values) -> str:
    """Return ``what`` with the labels where a value is not defined, or ""."""
    missing = np.flatnonzero(np.isnan(values)).tolist()
    if not missing:
        return ""
    listed = ", ".join(map(str, missing[:10]))
    return f"{what} {listed}{f' and {len(missing) - 10} more' if len(missing) > 10 else ''}"


def _ratio(part: Values, whole: Values) -> Values:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan))

"""Decoded examples in host memory or mapped from disk, and the check that they are usable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.data.errors import DataError
from common.data.spec import DataSpec

ROUNDING = 1e-6
"""By how much a float may lie outside [0, 1]: a few roundings of float32 (1.2e-7 each)."""


@dataclass(frozen=True)
class Arrays:
    """Images and labels of one split.

    Attributes
    ----------
    x : ndarray
        ``[n, channels, height, width]``; uint8, or float32 in [0, 1].
    y : ndarray of int64
        ``[n]``, labels from 0.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]


def checked(arrays: Arrays, spec: DataSpec, origin: str) -> Arrays:
    """Return ``arrays`` if a model of ``spec`` can train on them.

    Parameters
    ----------
    origin : str
        Where the arrays come from, for messages.

    Raises
    ------
    DataError
        Wrong shape, labels outside ``[0, num_classes)``, floats that are not in [0, 1] (give or
        take :data:`ROUNDING`), bytes that are only 0 and 1.
    """
    if arrays.x.shape[1:] != spec.shape or arrays.x.shape[0] != len(arrays.y):
        raise DataError(
            f"{origin}: expected images {['n', *spec.shape]} with as many labels, found images "
            f"{list(arrays.x.shape)} and {len(arrays.y)} labels"
        )
    _check_labels(arrays.y, spec, origin)
    if arrays.x.dtype == np.uint8:
        _check_bytes(arrays.x, origin)
    else:
        _check_floats(arrays.x, origin)
    return arrays


def _check_labels(labels: NDArray[np.int64], spec: DataSpec, origin: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= spec.num_classes))
    if wrong.size:
        raise DataError(
            f"{origin}: {wrong.size} labels lie outside 0 to {spec.num_classes - 1}, the first is "
            f"{labels[wrong[0]]} at row {wrong[0]}. Renumber the labels from 0, or set "
            "data.num-classes"
        )


def _check_bytes(images: NDArray[np.uint8], origin: str) -> None:
    if images.max(initial=0) == 1:
        raise DataError(
            f"{origin}: the largest byte of all images is 1, so they are black: bytes mean 0 to "
            "255. If they were scaled to [0, 1] before they became bytes, store the scaled ones as "
            "floats; if they are 0 and 1 by nature, multiply by 255"
        )


def _check_floats(images: NDArray[Any], origin: str) -> None:
    flat = images.reshape(len(images), -1)
    not_finite = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    if not_finite.size:
        raise DataError(
            f"{origin}: {not_finite.size} images have a NaN or an infinity, the first is at row "
            f"{not_finite[0]}. Remove or repair them"
        )
    if flat.size and (flat.min() < -ROUNDING or flat.max() > 1 + ROUNDING):
        raise DataError(
            f"{origin}: float images must lie in [0, 1] (within {ROUNDING:g}), found "
            f"{flat.min():.9g} to {flat.max():.9g}. Scale them to [0, 1], or store bytes (uint8, 0 "
            "to 255)"
        )

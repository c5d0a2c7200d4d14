"""Federated statistics: what the training examples of all sites together are like.

A site sends :class:`Moments` when it is asked who it is; they add up. What the server makes of all
of them, :class:`Statistics`, goes out with every instruction and is fixed for the experiment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 1e9
"""Beyond it a value is no measurement, but an id, a time stamp or a mistake."""

_BLOCK = 2**20
"""Values that are widened to float64 at once."""

_ROUNDING = 1e-13
"""A variance below this part of the mean square is what rounding leaves of a constant."""


@dataclass(frozen=True)
class Moments:
    """How many values of each column are present, their sum, and the sum of their squares.

    Attributes
    ----------
    present : tuple of int
    sums, squares : tuple of float
        One per column; 0 where nothing is present.
    """

    present: tuple[int, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Moments:
        """Return the moments of float ``[n, columns]``; a NaN is missing."""
        present = np.count_nonzero(~np.isnan(values), axis=0)
        columns = values.shape[1]
        rows = max(1, _BLOCK // columns)
        sums, squares = [], []
        for begin in range(0, len(values), rows):
            # By column in memory: NumPy adds pairwise along the last axis only.
            block = np.ascontiguousarray(values[begin : begin + rows].T, dtype=np.float64)
            block[np.isnan(block)] = 0.0
            sums.append(block.sum(axis=1).tolist())
            squares.append(np.square(block).sum(axis=1).tolist())
        counts = tuple(int(count) for count in present)
        return cls(counts, _total(sums, columns), _total(squares, columns))

    @classmethod
    def pooled(cls, parts: Iterable[Moments]) -> Moments:
        """Return the moments of all sites together; their order makes no difference to a bit."""
        sites = list(parts)
        columns = len(sites[0].present)
        return cls(
            tuple(sum(site.present[column] for site in sites) for column in range(columns)),
            _total([site.sums for site in sites], columns),
            _total([site.squares for site in sites], columns),
        )


@dataclass(frozen=True)
class Statistics:
    """What a kind of data standardises by; empty where there is nothing to standardise.

    Attributes
    ----------
    mean, std : tuple of float
        Per column, numbers that float32 can hold, so that all sites compute with the same bits.
        A standard deviation of 0: at the start no site had the column, or it was constant.
    label_counts : tuple of int
        Training examples of each class at all sites; empty where nothing asks for them
        (``task.class-weights``).
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    label_counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, moments: Moments) -> Statistics:
        """Return mean and (population) standard deviation of each column."""
        columns = [
            _mean_and_std(*column)
            for column in zip(moments.present, moments.sums, moments.squares, strict=True)
        ]
        return cls(tuple(mean for mean, _ in columns), tuple(std for _, std in columns))


def _mean_and_std(present: int, total: float, squares: float) -> tuple[float, float]:
    if not present:
        return 0.0, 0.0
    mean, mean_square = total / present, squares / present
    variance = mean_square - mean * mean
    std = math.sqrt(variance) if variance > _ROUNDING * mean_square else 0.0
    return float(np.float32(mean)), float(np.float32(std))


def _total(rows: Iterable[Iterable[float]], columns: int) -> tuple[float, ...]:
    """Return the sum of each column, rounded once."""
    by_column = zip(*rows, strict=True)
    return tuple(math.fsum(column) for column in by_column) or (0.0,) * columns

"""What is to be predicted: class labels, sets of labels, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from common.data.errors import DataError
from common.data.splits import Rows

LARGEST = 1e6
"""Beyond it a target is to be scaled: its square has to be summed."""


class Targets(Protocol):
    """What is to be predicted of an example.

    Attributes
    ----------
    outputs : int
        Numbers that a model's predictor gives for it.
    groups : int
        In how many groups examples are counted: for class labels, one for each.
    """

    @property
    def outputs(self) -> int:
        """See the class."""

    @property
    def groups(self) -> int:
        """See the class."""

    def check(self, y: NDArray[Any], origin: str) -> None:
        """Refuse targets ``[n]`` that can't be these; ``origin`` is for the message.

        Raises
        ------
        DataError
        """

    def groups_of(self, y: NDArray[Any]) -> Rows:
        """Return the group of each example, int64 ``[n]``."""


@dataclass(frozen=True)
class ClassLabels:
    """One of ``count`` labels, int64 from 0."""

    count: int

    @property
    def outputs(self) -> int:
        """Return one logit for each label."""
        return self.count

    @property
    def groups(self) -> int:
        """Return one group for each label."""
        return self.count

    def check(self, y: NDArray[Any], origin: str) -> None:
        """Refuse labels outside 0 to ``count - 1``."""
        wrong = np.flatnonzero((y < 0) | (y >= self.count))
        if wrong.size:
            raise DataError(
                f"{origin}: {wrong.size} labels lie outside 0 to {self.count - 1}, the first is "
                f"{y[wrong[0]]} at row {wrong[0]}. Renumber the labels from 0, or set "
                "data.num-classes"
            )

    def groups_of(self, y: NDArray[Any]) -> Rows:
        """Return the labels."""
        return np.asarray(y)


@dataclass(frozen=True)
class LabelSets:
    """Any of ``count`` labels, each there or not: float32 ``[n, count]`` of 0 and 1."""

    count: int

    @property
    def outputs(self) -> int:
        """Return one logit for each label."""
        return self.count

    @property
    def groups(self) -> int:
        """Return one group for each label, and one for examples without any."""
        return self.count + 1

    def check(self, y: NDArray[Any], origin: str) -> None:
        """Refuse another number of labels, and what is neither 0 nor 1."""
        if y.shape[1:] != (self.count,):
            raise DataError(
                f"{origin}: 'y' has shape {list(y.shape)}, but data.num-labels is {self.count}: "
                f"[n, {self.count}] of 0 and 1 is needed"
            )
        wrong = np.argwhere((y != 0) & (y != 1))
        if wrong.size:
            row, label = wrong[0]
            raise DataError(
                f"{origin}: {len(wrong)} entries of 'y' are neither 0 nor 1, the first is "
                f"{y[row, label]:g} at row {row}, label {label}. 1 says that an example has a "
                "label; what is unknown has to be decided or left out"
            )

    def groups_of(self, y: NDArray[Any]) -> Rows:
        """Return the first label of each example, ``count`` for those without any."""
        none = np.ones((len(y), 1), dtype=bool)
        return np.asarray(np.hstack([np.asarray(y) > 0, none]).argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Numbers:
    """One number, float32; all examples are one group."""

    outputs: int = 1
    groups: int = 1

    def check(self, y: NDArray[Any], origin: str) -> None:
        """Refuse numbers that are not finite or beyond ``LARGEST``."""
        wrong = np.flatnonzero(~(np.abs(y) <= LARGEST))
        if wrong.size:
            raise DataError(
                f"{origin}: {wrong.size} targets are missing, infinite or beyond {LARGEST:g}, the "
                f"first is {y[wrong[0]]:g} at row {wrong[0]}. Remove these examples, or scale the "
                "targets, the same way at all sites"
            )

    def groups_of(self, y: NDArray[Any]) -> Rows:
        """Return zeros."""
        return np.zeros(len(y), dtype=np.int64)

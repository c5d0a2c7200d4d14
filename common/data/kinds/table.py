"""Tables: rows of numbers, seen as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from common.data.errors import DataError
from common.data.kinds.base import Augment

LARGEST = 1e6
"""Beyond it a column is no number to compute with, but an id, a time stamp or a mistake."""


@dataclass(frozen=True)
class Table:
    """A row of numbers. They should be of the order of 1: nothing is scaled.

    Attributes
    ----------
    features : int
        Columns.
    """

    name: ClassVar[str] = "table"
    stored: ClassVar[str] = "rows of numbers"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    features: int

    @property
    def shape(self) -> tuple[int]:
        """Return the number of columns."""
        return (self.features,)

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse numbers that are not finite or beyond ``LARGEST``."""
        # A NaN is not at most anything.
        wrong = np.argwhere(~(np.abs(x) <= LARGEST))
        if wrong.size:
            row, column = wrong[0]
            raise DataError(
                f"{origin}: {len(wrong)} numbers are missing, infinite or beyond {LARGEST:g}, the "
                f"first is {x[row, column]:g} at row {row}, column {column}. Fill or remove what "
                "is missing, and scale every column to the order of 1, the same way at all sites"
            )

    def drawn(self, count: int, dtype: str, generator: np.random.Generator) -> NDArray[Any]:
        """Return numbers of a standard normal distribution."""
        return generator.standard_normal((count, *self.shape), dtype=np.float32)

    def prepare(self, stored: Tensor) -> Tensor:
        """Return the numbers as float32."""
        return stored.float()

    def augmentation(self, name: str) -> Augment | None:
        """Return None: there is no augmentation of tables."""
        if name != "none":
            raise DataError(
                f"data.augmentation={name!r} is for images, and the data are a table: use 'none'"
            )
        return None

    def facts(self) -> Mapping[str, object]:
        """Return the shape."""
        return {"kind": self.name, "shape": list(self.shape)}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Table:
        """Return what :meth:`facts` were made of."""
        return cls(*(int(size) for size in facts["shape"]))

"""Tables: numbers and categories, seen standardised by what all sites together have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.data.errors import DataError
from common.data.kinds.base import Augment
from common.data.statistics import LARGEST, Moments, Statistics


@dataclass(frozen=True)
class Table:
    """A row: numbers, then the number of the category in each categorical column.

    A NaN is missing. The model sees the numbers as ``(value - mean) / std`` with 0 for a missing
    one, which is the mean; then for each number whether it is missing; then a one-hot vector for
    each category, all zeros where it is missing.

    Attributes
    ----------
    numeric : int
        Columns of numbers.
    categories : tuple of int
        For each categorical column, how many categories it has.
    indicators : bool
        Whether values may be missing, and the model sees which. Without, a NaN is refused.
    standardise : bool
        Whether numbers are to be standardised by the statistics of all sites.
    mean, std : tuple of float
        Those statistics, per column of numbers. A ``std`` of 0 makes the column 0. Empty, as
        settings give it: numbers are seen as they are.
    """

    name: ClassVar[str] = "table"
    stored: ClassVar[str] = "rows of numbers"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    numeric: int
    categories: tuple[int, ...] = ()
    indicators: bool = False
    standardise: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int]:
        """Return how many numbers the model sees."""
        return (self.numeric * (1 + self.indicators) + sum(self.categories),)

    @property
    def stored_shape(self) -> tuple[int]:
        """Return the number of columns."""
        return (self.numeric + len(self.categories),)

    @property
    def measured(self) -> int:
        """Return the columns of numbers, where they are standardised."""
        return self.numeric if self.standardise else 0

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse numbers that are infinite or beyond ``LARGEST``, and unknown categories.

        And what is missing, if nothing may be.
        """
        # A NaN is neither at most anything nor beyond it.
        numbers = np.abs(x[:, : self.numeric])
        wrong = np.argwhere(numbers > LARGEST if self.indicators else ~(numbers <= LARGEST))
        if wrong.size:
            row, column = wrong[0]
            what = "infinite" if self.indicators else "missing, infinite"
            remedy = "" if self.indicators else "set data.missing='indicate', or "
            raise DataError(
                f"{origin}: {len(wrong)} numbers are {what} or beyond {LARGEST:g}, the first is "
                f"{x[row, column]:g} at row {row}, column {column}. Leave out columns of ids and "
                f"time stamps, repair or remove these rows, {remedy}use another unit, at all sites"
            )
        codes = x[:, self.numeric :]
        known = np.isnan(codes) if self.indicators else np.zeros(codes.shape, dtype=bool)
        known |= (codes >= 0) & (codes < np.array(self.categories)) & (codes == np.floor(codes))
        if not known.all():
            row, column = np.argwhere(~known)[0]
            raise DataError(
                f"{origin}: {codes[row, column]:g} at row {row}, column {self.numeric + column}, "
                f"is no category: allowed are 0 to {self.categories[column] - 1}"
            )

    def drawn(self, count: int, dtype: str, generator: np.random.Generator) -> NDArray[Any]:
        """Return normally distributed numbers, and categories; a tenth is missing if any may be."""
        numbers = generator.standard_normal((count, self.numeric), dtype=np.float32)
        if self.mean:
            mean, std = np.array([self.mean, self.std], dtype=np.float32)
            numbers = numbers * std + mean
        codes = generator.integers(0, self.categories, (count, len(self.categories)))
        rows = np.concatenate([numbers, codes.astype(np.float32)], axis=1)
        if self.indicators:
            rows[generator.random(rows.shape) < 0.1] = np.nan
        return rows

    def moments(self, x: NDArray[Any]) -> Moments:
        """Return the moments of the columns of numbers."""
        return Moments.of(x[:, : self.numeric])

    def fitted(self, statistics: Statistics) -> Table:
        """Return the table with these means and standard deviations."""
        return replace(self, mean=statistics.mean, std=statistics.std)

    def prepare(self, stored: Tensor) -> Tensor:
        """Return numbers, indicators and one-hot categories, float32."""
        stored = stored.float()
        numbers = stored[:, : self.numeric]
        missing = numbers.isnan()
        if self.mean:
            mean, std = (
                torch.tensor(values, dtype=torch.float32, device=stored.device)
                for values in (self.mean, self.std)
            )
            numbers = torch.where(std > 0, (numbers - mean) / std, torch.zeros_like(numbers))
        parts = [torch.where(missing, torch.zeros_like(numbers), numbers)]
        if self.indicators:
            parts.append(missing.float())
        for column, count in enumerate(self.categories, start=self.numeric):
            # A NaN equals nothing.
            known = torch.arange(count, dtype=torch.float32, device=stored.device)
            parts.append((stored[:, column, None] == known).float())
        return torch.cat(parts, dim=1)

    def augmentation(self, name: str) -> Augment | None:
        """Return None: there is no augmentation of tables."""
        if name != "none":
            raise DataError(
                f"data.augmentation={name!r} is for images, and the data are a table: use 'none'"
            )
        return None

    def facts(self) -> Mapping[str, object]:
        """Return the columns, and what they are standardised by."""
        return {
            "kind": self.name,
            "shape": list(self.shape),
            "numeric": self.numeric,
            "categories": list(self.categories),
            "indicators": self.indicators,
            "standardise": self.standardise,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Table:
        """Return what :meth:`facts` were made of; at first they held the shape alone."""
        return cls(
            int(facts.get("numeric", facts["shape"][0])),
            tuple(int(count) for count in facts.get("categories", ())),
            bool(facts.get("indicators", False)),
            bool(facts.get("standardise", False)),
            tuple(float(value) for value in facts.get("mean", ())),
            tuple(float(value) for value in facts.get("std", ())),
        )

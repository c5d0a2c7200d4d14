"""Time series: channels over time, each seen standardised by what all sites together have."""

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
class Signal:
    """A window of a time series. The model sees ``(value - mean) / std`` per channel.

    Attributes
    ----------
    shape : tuple of int
        Channels, length.
    standardise : bool
        Whether channels are to be standardised by the statistics of all sites.
    mean, std : tuple of float
        Those statistics, per channel. A ``std`` of 0 makes the channel 0. Empty, as settings give
        it: values are seen as they are.
    """

    name: ClassVar[str] = "signal"
    stored: ClassVar[str] = "signals"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    shape: tuple[int, int]
    standardise: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def stored_shape(self) -> tuple[int, int]:
        """Return the same shape."""
        return self.shape

    @property
    def measured(self) -> int:
        """Return the channels, where they are standardised."""
        return self.shape[0] if self.standardise else 0

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse values that are missing, infinite or beyond ``LARGEST``."""
        # A NaN is not at most anything.
        wrong = np.argwhere(~(np.abs(x) <= LARGEST))
        if wrong.size:
            row, channel, moment = wrong[0]
            raise DataError(
                f"{origin}: {len(wrong)} values are missing, infinite or beyond {LARGEST:g}, the "
                f"first is {x[row, channel, moment]:g} at row {row}, channel {channel}, moment "
                f"{moment}. Fill gaps, or leave these windows out"
            )

    def drawn(self, count: int, dtype: str, generator: np.random.Generator) -> NDArray[Any]:
        """Return noise of a normal distribution."""
        noise = generator.standard_normal((count, *self.shape), dtype=np.float32)
        if not self.mean:
            return noise
        mean, std = np.array([self.mean, self.std], dtype=np.float32)[:, :, None]
        return np.asarray(noise * std + mean)

    def moments(self, x: NDArray[Any]) -> Moments:
        """Return the moments of each channel over time: of an example its mean and mean square."""
        examples, channels, length = x.shape
        by_channel = Moments.of(x.transpose(0, 2, 1).reshape(-1, channels))
        return Moments(
            (examples,) * channels,
            tuple(total / length for total in by_channel.sums),
            tuple(total / length for total in by_channel.squares),
        )

    def fitted(self, statistics: Statistics) -> Signal:
        """Return the signal with these means and standard deviations."""
        return replace(self, mean=statistics.mean, std=statistics.std)

    def prepare(self, stored: Tensor) -> Tensor:
        """Return the values, standardised per channel."""
        values = stored.float()
        if not self.mean:
            return values
        mean, std = (
            torch.tensor(numbers, dtype=torch.float32, device=stored.device).view(-1, 1)
            for numbers in (self.mean, self.std)
        )
        return torch.where(std > 0, (values - mean) / std, torch.zeros_like(values))

    def augmentation(self, name: str) -> Augment | None:
        """Return None: there is no augmentation of signals."""
        if name != "none":
            raise DataError(f"data.augmentation={name!r} is not for signals: use 'none'")
        return None

    def facts(self) -> Mapping[str, object]:
        """Return the shape, and what channels are standardised by."""
        return {
            "kind": self.name,
            "shape": list(self.shape),
            "standardise": self.standardise,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Signal:
        """Return what :meth:`facts` were made of."""
        channels, length = facts["shape"]
        return cls(
            (int(channels), int(length)),
            bool(facts["standardise"]),
            tuple(float(value) for value in facts["mean"]),
            tuple(float(value) for value in facts["std"]),
        )

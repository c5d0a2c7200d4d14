"""Images: stored as bytes or as floats in [0, 1], seen normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.data.augmentation import check_croppable, crop_flip
from common.data.errors import DataError
from common.data.kinds.base import Augment

ROUNDING = 1e-6
"""By how much a float may lie outside [0, 1]: a few roundings of float32 (1.2e-7 each)."""


@dataclass(frozen=True)
class Image:
    """An image, scaled to [0, 1] and then normalised as ``(value - mean) / std``.

    Attributes
    ----------
    shape : tuple of int
        Channels, height, width.
    mean, std : tuple of float
        One per channel, of values in [0, 1].
    white : float
        The byte that stands for 1. Floats are stored as they are.
    """

    name: ClassVar[str] = "image"
    stored: ClassVar[str] = "images"
    dtypes: ClassVar[tuple[str, ...]] = ("uint8", "float32")

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    white: float = 255.0

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Return the same shape."""
        return self.shape

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse floats outside [0, 1], give or take ``ROUNDING``, and bytes of only 0 and 1."""
        if x.dtype == np.uint8:
            _check_bytes(x, origin)
        else:
            _check_floats(x, origin)

    def drawn(self, count: int, dtype: str, generator: np.random.Generator) -> NDArray[Any]:
        """Return noise: bytes from 0 to ``white``, or floats in [0, 1)."""
        size = (count, *self.shape)
        if dtype == "uint8":
            return generator.integers(0, int(self.white) + 1, size, dtype=np.uint8)
        return generator.random(size, dtype=np.float32)

    def prepare(self, stored: Tensor) -> Tensor:
        """Return ``(stored / white - mean) / std`` per channel."""
        white = self.white if stored.dtype == torch.uint8 else 1.0
        mean, std = (
            torch.tensor(values, dtype=torch.float32, device=stored.device).view(-1, 1, 1)
            for values in (self.mean, self.std)
        )
        return stored.float().div_(white).sub_(mean).div_(std)

    def augmentation(self, name: str) -> Augment | None:
        """Return ``crop-flip``, for images of at least 5x5."""
        if name == "none":
            return None
        if name != "crop-flip":
            raise DataError(
                f"data.augmentation={name!r} is not for images: allowed are 'none' and 'crop-flip'"
            )
        check_croppable(*self.shape[1:])
        return crop_flip

    def facts(self) -> Mapping[str, object]:
        """Return shape and normalisation."""
        return {
            "kind": self.name,
            "shape": list(self.shape),
            "mean": list(self.mean),
            "std": list(self.std),
            "white": self.white,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Image:
        """Return what :meth:`facts` were made of; Moonflower 0.1 did not write ``white``."""
        white = facts.get("white", 16.0 if facts["name"] == "digits" else 255.0)
        return cls(tuple(facts["shape"]), tuple(facts["mean"]), tuple(facts["std"]), float(white))


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

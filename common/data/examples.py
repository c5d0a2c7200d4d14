"""``ExampleSet``: the examples of one split, on the device where they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.memory import fits
from common.data.spec import DataSpec, white_level
from common.data.splits import Rows

Bounds = tuple[int, int]


@dataclass(frozen=True)
class StoredImages(Dataset[Tensor]):
    """Images that stay in a (mapped) array and are normalised batch by batch.

    Attributes
    ----------
    images : ndarray
        ``[n, channels, height, width]``, uint8 or float32.
    rows : ndarray of int64
        Which of the images belong to the set, in its order.
    spec : DataSpec
    """

    images: NDArray[Any]
    rows: Rows
    spec: DataSpec

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Tensor) -> Tensor:
        """Return the stored values of a batch of positions (int64, on the CPU)."""
        return torch.from_numpy(self.images[self.rows[index.numpy()]])

    def normalised(self, stored: Tensor) -> Tensor:
        """Return ``(stored / white - mean) / std`` per channel, float32."""
        white = white_level(self.spec.name, self.images.dtype)
        mean, std = (
            torch.tensor(values, dtype=torch.float32, device=stored.device).view(-1, 1, 1)
            for values in (self.spec.mean, self.spec.std)
        )
        # .float() of a float tensor is the tensor itself, but __getitem__ has made a copy.
        return stored.float().div_(white).sub_(mean).div_(std)


class ExampleSet:
    """Examples of one split.

    Attributes
    ----------
    y : Tensor
        Int64 ``[n]``, on the device.
    resident : bool
        Whether all normalised images lie on the device. If not, each batch is read, moved and
        normalised when it is asked for; the bits are the same.

    Parameters
    ----------
    images : Tensor or StoredImages
        Normalised float32 ``[n, channels, height, width]`` on the device of ``y``, or images that
        stay where they are.
    y : Tensor
    """

    def __init__(self, images: Tensor | StoredImages, y: Tensor) -> None:
        if len(images) != len(y):
            raise DataError(f"{len(images)} images and {len(y)} labels don't belong together")
        self._images = images
        self.y = y

    def __len__(self) -> int:
        return len(self.y)

    @property
    def resident(self) -> bool:
        """Whether ``x`` lies on the device as a whole."""
        return isinstance(self._images, Tensor)

    @property
    def x(self) -> Tensor:
        """All normalised images, float32 ``[n, channels, height, width]``, of a resident set.

        Raises
        ------
        DataError
            The set is too large to be resident.
        """
        if isinstance(self._images, Tensor):
            return self._images
        raise DataError(
            f"these {len(self)} examples don't fit on {self.y.device} as a whole: use "
            "batches_in_order, or raise MOONFLOWER_RESIDENT_MB"
        )

    def take(self, index: Tensor) -> Tensor:
        """Return the normalised images at ``index`` (int64 ``[b]``, any device)."""
        if isinstance(self._images, Tensor):
            return self._images[index.to(self.y.device)]
        stored = self._images[index.cpu()]
        return self._images.normalised(stored.to(self.y.device))

    def batches(
        self, order: Tensor, bounds: Sequence[Bounds]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield ``(x, y, index)`` on the device for every ``order[begin:end]``.

        Parameters
        ----------
        order : Tensor
            Int64 positions in this set, on the CPU.
        bounds : sequence of (begin, end)
            The batches, as slices of ``order``.
        """
        order_on_device = order.to(self.y.device)
        if isinstance(self._images, Tensor):
            for begin, end in bounds:
                index = order_on_device[begin:end]
                yield self._images[index], self.y[index], index
            return
        loader = _loader(self._images, order, bounds, self.y.device)
        for stored, (begin, end) in zip(loader, bounds, strict=True):
            index = order_on_device[begin:end]
            moved = stored.to(self.y.device, non_blocking=True)
            yield self._images.normalised(moved), self.y[index], index

    def batches_in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(x, y)`` of the whole set in its own order, ``batch_size`` at a time."""
        bounds = [
            (begin, min(begin + batch_size, len(self))) for begin in range(0, len(self), batch_size)
        ]
        if isinstance(self._images, Tensor):
            for begin, end in bounds:
                yield self._images[begin:end], self.y[begin:end]
            return
        for x, y, _ in self.batches(torch.arange(len(self)), bounds):
            yield x, y


def open_examples(arrays: Arrays, rows: Rows, spec: DataSpec, device: torch.device) -> ExampleSet:
    """Return the examples at ``rows``, resident on ``device`` where they fit.

    Raises
    ------
    DataError
        ``MOONFLOWER_RESIDENT_MB`` is not a number.
    """
    y = torch.from_numpy(np.asarray(arrays.y[rows])).to(device)
    stored = StoredImages(arrays.x, rows, spec)
    if not fits(len(rows) * int(np.prod(spec.shape)) * 4, device):
        return ExampleSet(stored, y)
    whole = stored[torch.arange(len(rows))].to(device)
    return ExampleSet(stored.normalised(whole), y)


def _loader(
    images: StoredImages, order: Tensor, bounds: Sequence[Bounds], device: torch.device
) -> DataLoader[Tensor]:
    return DataLoader(
        images,
        batch_size=None,  # a "sample" is a whole batch: one gather from the mapped array
        sampler=[order[begin:end] for begin, end in bounds],
        # No workers: gathering mapped bytes costs less than passing them between processes.
        num_workers=0,
        pin_memory=device.type == "cuda",
        # Without one of its own the loader draws from torch's global generator.
        generator=torch.Generator(),
    )

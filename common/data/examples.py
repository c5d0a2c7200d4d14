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
from common.data.kinds import Kind
from common.data.memory import fits
from common.data.spec import DataSpec
from common.data.splits import Rows

Bounds = tuple[int, int]


@dataclass(frozen=True)
class StoredExamples(Dataset[Tensor]):
    """Examples that stay in a (mapped) array and are prepared batch by batch.

    Attributes
    ----------
    stored : ndarray
        ``[n, *stored_shape]``, as the kind of data stores it.
    rows : ndarray of int64
        Which of them belong to the set, in its order.
    kind : Kind
    """

    stored: NDArray[Any]
    rows: Rows
    kind: Kind

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Tensor) -> Tensor:
        """Return the stored values of a batch of positions (int64, on the CPU), copied."""
        return torch.from_numpy(self.stored[self.rows[index.numpy()]])


class ExampleSet:
    """Examples of one split.

    Attributes
    ----------
    y : Tensor
        ``[n]``, on the device: labels (int64) or numbers (float32).
    resident : bool
        Whether all prepared examples lie on the device. If not, each batch is read, moved and
        prepared when it is asked for; the bits are the same.

    Parameters
    ----------
    x : Tensor or StoredExamples
        What the model sees, float32 ``[n, *shape]`` on the device of ``y``, or examples that stay
        where they are.
    y : Tensor
    """

    def __init__(self, x: Tensor | StoredExamples, y: Tensor) -> None:
        if len(x) != len(y):
            raise DataError(f"{len(x)} examples and {len(y)} labels don't belong together")
        self._x = x
        self.y = y

    def __len__(self) -> int:
        return len(self.y)

    @property
    def resident(self) -> bool:
        """Whether ``x`` lies on the device as a whole."""
        return isinstance(self._x, Tensor)

    @property
    def x(self) -> Tensor:
        """All of a resident set, float32 ``[n, *shape]``.

        Raises
        ------
        DataError
            The set is too large to be resident.
        """
        if isinstance(self._x, Tensor):
            return self._x
        raise DataError(
            f"these {len(self)} examples don't fit on {self.y.device} as a whole: use "
            "batches_in_order, or raise MOONFLOWER_RESIDENT_MB"
        )

    def take(self, index: Tensor) -> Tensor:
        """Return what the model sees at ``index`` (int64 ``[b]``, any device)."""
        if isinstance(self._x, Tensor):
            return self._x[index.to(self.y.device)]
        stored = self._x[index.cpu()]
        return self._x.kind.prepare(stored.to(self.y.device))

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
        if isinstance(self._x, Tensor):
            for begin, end in bounds:
                index = order_on_device[begin:end]
                yield self._x[index], self.y[index], index
            return
        loader = _loader(self._x, order, bounds, self.y.device)
        for stored, (begin, end) in zip(loader, bounds, strict=True):
            index = order_on_device[begin:end]
            moved = stored.to(self.y.device, non_blocking=True)
            yield self._x.kind.prepare(moved), self.y[index], index

    def batches_in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(x, y)`` of the whole set in its own order, ``batch_size`` at a time."""
        bounds = [
            (begin, min(begin + batch_size, len(self))) for begin in range(0, len(self), batch_size)
        ]
        if isinstance(self._x, Tensor):
            for begin, end in bounds:
                yield self._x[begin:end], self.y[begin:end]
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
    stored = StoredExamples(arrays.x, rows, spec.kind)
    if not fits(len(rows) * int(np.prod(spec.kind.shape)) * 4, device):
        return ExampleSet(stored, y)
    whole = stored[torch.arange(len(rows))].to(device)
    return ExampleSet(spec.kind.prepare(whole), y)


def _loader(
    stored: StoredExamples, order: Tensor, bounds: Sequence[Bounds], device: torch.device
) -> DataLoader[Tensor]:
    return DataLoader(
        stored,
        batch_size=None,  # a "sample" is a whole batch: one gather from the mapped array
        sampler=[order[begin:end] for begin, end in bounds],
        # No workers: gathering mapped bytes costs less than passing them between processes.
        num_workers=0,
        pin_memory=device.type == "cuda",
        # Without one of its own the loader draws from torch's global generator.
        generator=torch.Generator(),
    )

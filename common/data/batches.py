"""Batches for training, shuffled anew in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from common.data.errors import DataError
from common.data.examples import Bounds, ExampleSet
from common.data.kinds import Augment


@dataclass(frozen=True)
class Batch:
    """One batch on the device.

    Attributes
    ----------
    x : Tensor
        What the model sees, float32 ``[batch, *shape]``, augmented.
    y : Tensor
        ``[batch]``: labels (int64) or numbers (float32).
    index : Tensor
        Int64 ``[batch]``: positions in the example set.
    """

    x: Tensor
    y: Tensor
    index: Tensor


def batch_bounds(count: int, batch_size: int, *, drop_last: bool) -> list[Bounds]:
    """Return the slices that cut ``count`` examples into the batches of one epoch.

    A last batch of one example joins the batch before it, since BatchNorm can't take the variance
    of one. ``drop_last`` drops a smaller last batch, unless it is the only one.
    """
    full, rest = divmod(count, batch_size)
    bounds = [(number * batch_size, (number + 1) * batch_size) for number in range(full)]
    if not rest or (drop_last and full):
        return bounds
    if rest == 1 and full:
        return [*bounds[:-1], (bounds[-1][0], count)]
    return [*bounds, (full * batch_size, count)]


def batches_in_epoch(count: int, batch_size: int, *, drop_last: bool) -> int:
    """Return how many batches :func:`batch_bounds` makes of ``count`` examples."""
    full, rest = divmod(count, batch_size)
    return full if not rest or (full and (drop_last or rest == 1)) else full + 1


class TrainBatches:
    """The batches of one round of local training.

    Iterating a second time goes on with new permutations.

    Parameters
    ----------
    examples : ExampleSet
        At least one example.
    batch_size : int
        At least 1. A batch may hold one example more (:func:`batch_bounds`).
    drop_last : bool
        Whether to drop the last, smaller batch of an epoch.
    epochs : int
        Passes over the examples; not looked at where ``steps`` is given.
    steps : int
        Exactly this many batches, through as many permutations as it takes. 0: ``epochs``.
    generator : torch.Generator
        On the CPU. The permutations, and the seed of the augmentation, come from it.
    augment : callable, optional
        Of the kind of data (``Kind.augmentation``).

    Raises
    ------
    DataError
        No examples.
    ValueError
        A number out of range.
    """

    def __init__(
        self,
        examples: ExampleSet,
        *,
        batch_size: int,
        drop_last: bool,
        epochs: int,
        steps: int,
        generator: torch.Generator,
        augment: Augment | None = None,
    ) -> None:
        if batch_size < 1 or steps < 0 or (steps == 0 and epochs < 1):
            raise ValueError(
                f"batch_size={batch_size}, epochs={epochs}, steps={steps}: needed are a batch_size "
                "and epochs from 1 and steps from 0"
            )
        if len(examples) == 0:
            raise DataError("there are no examples to train on: give this client some, or stop it")
        self._examples = examples
        self._bounds = batch_bounds(len(examples), batch_size, drop_last=drop_last)
        self._epochs = epochs
        self._steps = steps
        self._generator = generator
        self._augment = augment
        # Drawn with and without augmentation, so that both see the same permutations.
        seed = torch.randint(0, 2**63 - 1, (), generator=generator)
        self._augmentation_generator = torch.Generator().manual_seed(int(seed))

    def __len__(self) -> int:
        """Return the number of batches."""
        return self._steps or self._epochs * len(self._bounds)

    def __iter__(self) -> Iterator[Batch]:
        return islice(self._endless(), len(self))

    def _endless(self) -> Iterator[Batch]:
        while True:
            order = torch.randperm(len(self._examples), generator=self._generator)
            for x, y, index in self._examples.batches(order, self._bounds):
                if self._augment is not None:
                    x = self._augment(x, self._augmentation_generator)  # noqa: PLW2901
                yield Batch(x, y, index)

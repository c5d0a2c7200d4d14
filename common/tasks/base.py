"""What a task is: what is learned from a batch, and how good a model is at it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.data import Batch, ExampleSet
from common.models import SplitModel

BATCH_SIZE = 512
"""Examples measured at once. Fixed, so that a saved model gives the logged numbers again to the
last bit."""

Counts = NDArray[np.int64]
Sum = int | float | list[int] | list[float] | Counts
Sums = Mapping[str, Sum]
"""Named numbers, or lists of them, that add up: over batches, clients and rounds, in any order.

``num-examples`` is always there. Whole numbers where possible: their sums are exact. Long lists
of whole numbers (``Task.counts``) are arrays, int64 ``[length]``.
"""


@dataclass(frozen=True)
class Step:
    """One batch in training.

    Attributes
    ----------
    x : Tensor
        As the kind of data says (``common.data.kinds``), ``[batch, ...]``.
    y : Tensor
        ``[batch]``, what is to be predicted.
    index : Tensor
        Int64 ``[batch]``: where in the client's training set the batch comes from.
    z : Tensor
        Float ``[batch, latent_dim]``, with gradient.
    output : Tensor
        Float ``[batch, outputs]`` of the predictor, with gradient.
    loss : Tensor
        The task's own loss, a scalar: the mean over the batch.
    model : SplitModel
        The model in training.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    z: Tensor
    output: Tensor
    loss: Tensor
    model: SplitModel


LESS_IS_BETTER = frozenset({"loss", "brier", "calibration-error", "rmse", "mae"})
"""Scores that are errors."""


@dataclass(frozen=True)
class Headline:
    """The score that a model is chosen by: its name, and which way is better."""

    name: str
    more_is_better: bool = True

    @classmethod
    def of(cls, name: str) -> Headline:
        """Return the headline of a score."""
        return cls(name, name not in LESS_IS_BETTER)

    def better(self, score: float, than: float) -> bool:
        """Return whether ``score`` is better; an equal one is not."""
        return score > than if self.more_is_better else score < than


@dataclass(frozen=True)
class Scores:
    """What sums amount to.

    Attributes
    ----------
    values : Mapping
        By name, the headline first, as they stand in ``metrics.jsonl``; None for a score that is
        not defined.
    undefined : Mapping[str, str]
        Why, by the names of those that are None.
    """

    values: Mapping[str, object]
    undefined: Mapping[str, str] = field(default_factory=dict)


class Task(Protocol):
    """What is learned, and how good a model is at it.

    Attributes
    ----------
    loss_name : str
        The metric under which the mean of the task's own loss is reported.
    headline : Headline
        ``best/`` is chosen by it, ``server.patience`` may watch it, and the table at the end of a
        run shows it.
    answer : str
        What :meth:`answers` gives, such as ``probabilities``.
    by_client : tuple[str, ...]
        The scores that people want to see of each client; few, since they are in every line of
        ``metrics.jsonl``.
    sums : Mapping[str, int or None]
        What :meth:`measure` reports beside ``num-examples``: None for a number, the length of a
        list.
    counts : Mapping[str, int]
        What else it reports: lengths of long lists of whole numbers, which travel packed.
    """

    loss_name: str
    headline: Headline
    answer: str
    by_client: tuple[str, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """See the class."""

    @property
    def sums(self) -> Mapping[str, int | None]:
        """See the class."""

    def forward(self, model: SplitModel, batch: Batch) -> Step:
        """Return z, output and loss of a batch, in float32 whatever the precision."""

    def answers(self, output: Tensor) -> Tensor:
        """Return what a person wants to know, ``[batch, ...]``, of the predictor's output.

        It becomes part of an exported model: operations of torch alone.
        """

    def measure(self, model: SplitModel, examples: ExampleSet) -> Sums:
        """Measure ``model`` in eval mode on all ``examples``, of which there may be none."""

    def why_not(self, sums: Sums) -> str:
        """Return why a client's sums can't be its, or "".

        Names, lengths and that all is finite have been looked at; counts are from 0 to 2**40.
        """

    def score(self, sums: Sums) -> Scores:
        """Return what ``sums`` amount to: the headline, ``loss``, ``examples`` and others."""

    def guessing(self, score: float, scores: Mapping[str, object]) -> str:
        """Return what says that a model does no better than guessing, or "".

        Parameters
        ----------
        score : float
            The headline, of the global model or the mean over clients.
        scores : Mapping
            The others with it.
        """


def add(parts: Iterable[Sums]) -> dict[str, Sum]:
    """Return the sums of at least one part; their order makes no difference to a bit."""
    all_parts = list(parts)
    return {name: _total([part[name] for part in all_parts]) for name in all_parts[0]}


def _total(values: list[Sum]) -> Sum:
    if isinstance(values[0], np.ndarray):
        return cast(Counts, np.sum(cast(list[Counts], values), axis=0, dtype=np.int64))
    if isinstance(values[0], list):
        columns = zip(*cast(list[list[float]], values), strict=True)
        return cast(Sum, [_total(list(column)) for column in columns])
    single = cast(list[float], values)
    return sum(single) if all(isinstance(n, int) for n in single) else math.fsum(single)


def number(sums: Sums, name: str) -> float:
    """Return one of the sums that is a number."""
    return cast(float, sums[name])


def numbers(sums: Sums, name: str) -> list[float]:
    """Return one of the sums that is a list."""
    return cast(list[float], sums[name])


def counts(sums: Sums, name: str) -> Counts:
    """Return one of the sums that is an array."""
    return cast(Counts, sums[name])


def with_headline(
    headline: Headline, values: Mapping[str, object], undefined: Mapping[str, str]
) -> Scores:
    """Return scores with the headline first; reasons only of those that are undefined."""
    first = {headline.name: values[headline.name]}
    return Scores({**first, **values}, {name: why for name, why in undefined.items() if why})


@contextmanager
def evaluating(model: SplitModel) -> Iterator[None]:
    """Put ``model`` into eval mode, without gradients; its mode is put back afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)

"""Seconds of several ways to do the same work, taken in turns so that noise hits them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.utils.benchmark import timer

Work = Callable[[], object]
Prepare = Callable[[], Work]
"""Makes everything that one repetition needs and is not timed; what it returns is."""


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` measured.

    Attributes
    ----------
    seconds : Mapping[str, list[float]]
        By contender; the entries of one repetition stand at the same place in every list.
    """

    seconds: Mapping[str, list[float]]

    def median(self, contender: str) -> float:
        """Return the median of a contender's seconds."""
        return statistics.median(self.seconds[contender])

    def speed(self, contender: str, reference: str) -> float:
        """Return how fast ``contender`` is, as a multiple of the speed of ``reference``.

        The median of the repetitions' ratios and not the ratio of the medians: what slows a
        machine down for a while slows both down.
        """
        pairs = zip(self.seconds[reference], self.seconds[contender], strict=True)
        return statistics.median(slow / fast for slow, fast in pairs)


def compare(
    contenders: Mapping[str, Prepare],
    repetitions: int,
    now: Callable[[], float] = timer,
) -> Comparison:
    """Time every contender ``repetitions`` times, in turns, after one untimed turn each.

    Parameters
    ----------
    contenders : Mapping[str, Prepare]
        The one that begins is another one in every repetition.
    repetitions : int
        From 1.
    now : callable
        A clock, in seconds; PyTorch's waits for the GPU before it is read.

    Raises
    ------
    ValueError
        ``repetitions`` is below 1, or there are no contenders.
    """
    if repetitions < 1 or not contenders:
        raise ValueError(
            f"{len(contenders)} contenders and {repetitions} repetitions: one of each is needed"
        )
    names = list(contenders)
    for name in names:
        _timed(contenders[name], now)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(_timed(contenders[name], now))
    return Comparison(seconds)


def _timed(prepare: Prepare, now: Callable[[], float]) -> float:
    work = prepare()
    began = now()
    work()
    return now() - began

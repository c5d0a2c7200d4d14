"""Axes: from numbers to places, the ticks beside them, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TICKS = 4
"""About so many on an axis."""
DECADES = 3
"""An axis whose positive numbers span more powers of ten is logarithmic."""


def text_of(number: float | None) -> str:
    """Return a number as people read it; a dash for none."""
    if number is None:
        return "-"
    if number == int(number) and abs(number) < 1e6:
        return str(int(number))
    return f"{number:.3g}"


def score_text(number: float | None) -> str:
    """Return a score with the three decimals that the log has."""
    if number is None:
        return "-"
    return f"{number:.3f}" if abs(number) < 1e4 else f"{number:.3g}"


def size_text(size: float) -> str:
    """Return bytes in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def time_text(seconds: float) -> str:
    """Return seconds in the units that fit, such as "3 min 20 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, unit in units:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


@dataclass(frozen=True)
class Scale:
    """A straight or logarithmic axis.

    Attributes
    ----------
    low, high : float
        Numbers at its two ends, ``low < high``.
    start, end : float
        Where the ends are on the picture.
    is_log : bool
    is_whole : bool
        Whether only whole numbers are on it, as rounds are.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False
    is_whole: bool = False

    def __call__(self, number: float) -> float:
        """Return where a number is; one that a logarithmic axis does not have is at its start."""
        low, high = self.low, self.high
        if self.is_log:
            number = max(number, low)
            low, high, number = math.log10(low), math.log10(high), math.log10(number)
        return self.start + (number - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return place and text of each tick."""
        return [(self(number), text_of(number)) for number in self._round_numbers()]

    def _round_numbers(self) -> Iterable[float]:
        if self.is_log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, (last - first) // TICKS)
            return [10.0**power for power in range(first, last + 1, every)]
        step = _step(self.high - self.low, self.is_whole)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [each * step for each in range(first, last + 1)]


def rounds_scale(rounds: Sequence[int], start: float, end: float) -> Scale:
    """Return the axis of round numbers; a single one gets room on both sides."""
    low, high = min(rounds, default=0), max(rounds, default=1)
    if low == high:
        low, high = low - 1, high + 1
    return Scale(low, high, start, end, is_whole=True)


def scale_of(numbers: Iterable[float], start: float, end: float) -> Scale:
    """Return an axis with round ends that holds all ``numbers``."""
    known = list(numbers)
    low, high = min(known, default=0.0), max(known, default=1.0)
    if low > 0 and high / low > 10**DECADES:
        ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return Scale(10.0 ** ends[0], 10.0 ** ends[1], start, end, is_log=True)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        room = abs(low) / 2 or 0.5
        low, high = low - room, high + room
    elif 0 < low < (high - low) / 2:
        low = 0.0
    step = _step(high - low)
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, start, end)


def _step(span: float, is_whole: bool = False) -> float:
    """Return the distance of ticks: 1, 2, 2.5 or 5 times a power of ten."""
    rough = span / TICKS
    steps = (1, 2, 5) if is_whole else (1, 2, 2.5, 5)
    power = 10.0 ** math.floor(math.log10(rough))
    if is_whole and power < 1:
        return 1.0
    return next((power * each for each in steps if power * each >= rough), power * 10)

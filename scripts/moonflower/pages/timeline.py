"""Which rounds something happened in: a lane of marks for each kind of event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.moonflower.pages.scales import Scale, rounds_scale

LEFT, RIGHT, LANE = 118, 426, 26
COLUMNS = 150
"""Events nearer to each other than a column are one mark."""


@dataclass(frozen=True)
class Mark:
    """Events of one kind at one place; ``words`` says which."""

    x: float
    size: float
    words: str


@dataclass(frozen=True)
class Lane:
    """All events of one kind."""

    name: str
    y: float
    count: int
    marks: list[Mark]


@dataclass(frozen=True)
class Timeline:
    """A picture of lanes, ready to be drawn."""

    title: str
    description: str
    x_ticks: list[tuple[float, str]]
    lanes: list[Lane]
    height: float
    note: str = ""
    kind: str = "timeline"


def timeline(
    title: str, rounds: Sequence[int], events: Mapping[str, Sequence[int]]
) -> Timeline | None:
    """Return a picture of the rounds of each kind of event; None if there are no events."""
    lanes = {name: places for name, places in events.items() if places}
    if not lanes:
        return None
    x = rounds_scale(rounds, LEFT, RIGHT)
    return Timeline(
        title,
        " ".join(f"{name}: {rounds_text(places)}." for name, places in lanes.items()),
        x.ticks(),
        [
            Lane(name, 18 + n * LANE, len(places), _marks(name, places, x))
            for n, (name, places) in enumerate(lanes.items())
        ],
        18 + len(lanes) * LANE + 22,
    )


def _marks(name: str, places: Sequence[int], x: Scale) -> list[Mark]:
    groups: dict[int, list[int]] = {}
    for place in places:
        groups.setdefault(int((x(place) - LEFT) / (RIGHT - LEFT) * COLUMNS), []).append(place)
    return [
        Mark(x(sum(group) / len(group)), min(7.0, 3.0 + 0.8 * len(group)), _words(name, group))
        for group in groups.values()
    ]


def _words(name: str, group: Sequence[int]) -> str:
    return f"{name}, round {rounds_text(group)}" + (f" ({len(group)})" if len(group) > 1 else "")


def rounds_text(rounds: Sequence[int], most: int = 12) -> str:
    """Return numbers of rounds as "1, 4-7", cut after ``most`` groups."""
    runs: list[list[int]] = []
    for number in sorted(Counter(rounds)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more

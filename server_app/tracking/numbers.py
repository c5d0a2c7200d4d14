"""From a line of ``metrics.jsonl`` to numbers with a name and a step: the one way for all trackers.

What is written while a run goes on and what is exported afterwards come from here, so they are
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Line = Mapping[str, Any]
"""One round, as ``RoundReport.record()`` makes it."""

COUNTED = frozenset(
    {"participants", "refused", "missing", "excluded", "unreadable", "clipped", "alarms"}
)
"""What lists clients or sentences: its length is the number."""


class Number(NamedTuple):
    """One point of one curve."""

    name: str
    """Where it stands in the line, as ``clients/per-client/clinic-a``; of a list also its index."""
    step: int
    """The round, from 1."""
    value: float


def numbers_of(line: Line) -> Iterator[Number]:
    """Yield the numbers of a round, each once, in the order of the line.

    Whatever a line holds that is a number becomes one, under whichever name, so that a task's new
    score needs no change here. Left out are texts, what is not defined (null), and tables within
    the line (a confusion matrix, the bins of a calibration), which are no curves.
    """
    step = int(line["round"])
    for name, value in _walk("", line):
        if name != "round":
            yield Number(name, step, value)


def _walk(name: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, list | Mapping) and name.rpartition("/")[2] in COUNTED:
        yield name, float(len(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(f"{name}/{key}" if name else str(key), item)
    elif isinstance(value, list) and all(
        item is None or isinstance(item, int | float) for item in value
    ):
        for index, item in enumerate(value):
            yield from _walk(f"{name}/{index}", item)

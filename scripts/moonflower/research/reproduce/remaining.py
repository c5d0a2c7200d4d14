"""How long a table will still take: pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.moonflower.durations import RECENT
from scripts.moonflower.research.reproduce.record import Record


def seconds_per_round(record: Record) -> float | None:
    """Return the mean of a cell's recent rounds; None before the first."""
    recent = [float(line["seconds"]["total"]) for line in record.lines[-RECENT:]]
    return sum(recent) / len(recent) if recent else None


def remaining_seconds(
    records: Sequence[Record], known: Sequence[Record], jobs: int
) -> float | None:
    """Estimate the seconds until ``records`` are finished, ``jobs`` at a time.

    Parameters
    ----------
    records : Sequence[Record]
        Cells that run or wait.
    known : Sequence[Record]
        All cells that may tell how fast a round is: a cell without a round is taken to be as
        fast as others of its row, else as the mean of all.
    jobs : int

    Returns
    -------
    float or None
        None while nothing is known.
    """
    everywhere = _mean([seconds_per_round(each) for each in known])
    if everywhere is None:
        return None
    by_row = {
        name: _mean([seconds_per_round(each) for each in known if each.cell.row.name == name])
        for name in {record.cell.row.name for record in records}
    }
    left = []
    for record in records:
        speed = seconds_per_round(record) or by_row[record.cell.row.name] or everywhere
        left.append((record.cell.rounds - record.rounds) * speed)
    return max(max(left, default=0.0), sum(left) / jobs)


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None

"""From the lines of ``metrics.jsonl`` to mean ± std: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.moonflower.research.reproduce.record import Line
from scripts.moonflower.research.reproduce.table_file import Score


@dataclass(frozen=True)
class MeanStd:
    """A cell of the table, in the unit of its score.

    Attributes
    ----------
    mean : float
    std : float or None
        Of the sample (n - 1); None for a single value.
    runs : int
    """

    mean: float
    std: float | None
    runs: int

    def __str__(self) -> str:
        """Return it as in the papers."""
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


def curve(lines: Sequence[Line], score: Score) -> list[tuple[int, float]]:
    """Return the score's number of every round that has one: (round, value)."""
    table, key = score.number.split(".")
    found = [(int(line["round"]), (line[table] or {}).get(key)) for line in lines]
    return [(server_round, float(value)) for server_round, value in found if value is not None]


def score_of_run(lines: Sequence[Line], score: Score) -> float | None:
    """Return a run's number: its last one, or the mean of its best.

    None where it was never measured.
    """
    values = [value for _, value in curve(lines, score)]
    if not values:
        return None
    if score.best == 0:
        return values[-1]
    best = sorted(values, reverse=score.better == "more")[: score.best]
    return math.fsum(best) / len(best)


def values_of_run(lines: Sequence[Line], score: Score) -> list[float]:
    """Return what a run adds to mean and std: its score, or its clients' last scores."""
    if score.over == "clients":
        measured = [line["clients"]["per-client"] for line in lines if line["clients"]]
        last = measured[-1].values() if measured else ()
        return [float(value) for value in last if value is not None]
    value = score_of_run(lines, score)
    return [] if value is None else [value]


def mean_std(runs: Sequence[Sequence[Line]], score: Score) -> MeanStd | None:
    """Return mean and standard deviation over the values of ``runs``, in the score's unit.

    None where no run has a value.
    """
    values = [score.shown(value) for lines in runs for value in values_of_run(lines, score)]
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    std = None
    if len(values) > 1:
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return MeanStd(mean, std, len(runs))


def describe(score: Score) -> str:
    """Say in a sentence which number of a run counts."""
    table, name = score.number.split(".")
    if table == "global":
        number = f"the global model's {name} on the whole test set"
    elif name == "weighted":
        number = "the score of all test examples of the clients together"
    else:
        number = "the mean of the clients' scores"
    rounds = "of the last round" if score.best == 0 else f"mean of the {score.best} best rounds"
    over = "runs (seeds)" if score.over == "seeds" else "all clients of all runs"
    return (
        f"protocol `{score.protocol}`, {number}, {rounds}; "
        f"± is the sample standard deviation over {over} ({score.why})"
    )

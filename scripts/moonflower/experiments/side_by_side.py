"""Experiments side by side: what each reached and took, over seeds, and by how much they differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.errors import MoonflowerError
from scripts.moonflower.experiments.experiment import Experiment, score_of
from scripts.moonflower.experiments.metrics_file import number_at

NOT_SETTINGS = ("seed", "experiment", "resume", "resume-changes")
"""Settings that say which run it is, and not what was run."""

MEASURES = ("final", "best", "worst", "rounds-to", "megabytes-to", "megabytes", "seconds")


class ComparisonError(MoonflowerError):
    """These experiments can't be compared; the message says why and what can."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of numbers; ``std`` is None for a single one."""

    mean: float
    std: float | None
    count: int


@dataclass(frozen=True)
class Group:
    """Experiments whose settings are equal but for the seed.

    Attributes
    ----------
    label : str
        The settings in which it differs from the other groups.
    by_seed : Mapping[int, Experiment]
        Ascending.
    measures : Mapping[int, Mapping[str, float or None]]
        By seed, the numbers of :data:`MEASURES`.
    """

    label: str
    by_seed: Mapping[int, Experiment]
    measures: Mapping[int, Mapping[str, float | None]]

    def spread(self, measure: str) -> Spread | None:
        """Return what a measure is over the seeds that have it; None if none does."""
        return spread(each[measure] for each in self.measures.values())


def spread(numbers: Iterable[float | None]) -> Spread | None:
    """Return mean and sample standard deviation of those that are not None."""
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return Spread(math.fsum(known) / len(known), std, len(known))


def paired(one: Group, other: Group, measure: str = "final") -> Spread | None:
    """Return ``other - one`` over the seeds that both have; None if they share none.

    The same seed deals out the same data and draws the same clients, so that a difference of
    pairs spreads less than its two sides.
    """
    seeds = one.measures.keys() & other.measures.keys()
    pairs = [(one.measures[seed][measure], other.measures[seed][measure]) for seed in seeds]
    return spread(b - a for a, b in pairs if a is not None and b is not None)


def measures_of(experiment: Experiment, to: float | None) -> dict[str, float | None]:
    """Return the numbers of :data:`MEASURES` of one experiment.

    ``final`` and ``worst`` are of the last evaluated round, ``megabytes`` go both ways, and those
    with ``-to`` are what it took to a score of ``to`` (None where it was not reached).
    """
    headline = experiment.headline
    scored = [line for line in experiment.lines if score_of(line, headline.name) is not None]
    last = scored[-1] if scored else None
    took = reached = None
    if to is not None:
        sign = 1 if headline.more_is_better else -1
        good = (line for line in scored if sign * (score_of(line, headline.name) or 0) >= sign * to)
        reached = next(good, None)
    if reached is not None:
        took = _sum(line for line in experiment.lines if line["round"] <= reached["round"])
    whole = _sum(experiment.lines)
    return {
        "final": score_of(last, headline.name) if last else None,
        "best": experiment.best[1] if experiment.best else None,
        "worst": number_at(last, "clients", "worst", headline.name) if last else None,
        "rounds-to": float(reached["round"]) if reached else None,
        "megabytes-to": took[0] if took else None,
        "megabytes": whole[0],
        "seconds": whole[1],
    }


def compared(experiments: Sequence[Experiment], to: float | None = None) -> list[Group]:
    """Return the experiments in groups of equal settings, in the order in which they are named.

    Raises
    ------
    ComparisonError
        They have no rounds, are judged by different scores, or two are of the same settings and
        seed.
    """
    _check(experiments)
    keys = [_key(each) for each in experiments]
    differing = [
        name
        for name in sorted({name for key in keys for name in key})
        if len({repr(key.get(name)) for key in keys}) > 1
    ]
    groups: dict[str, dict[int, Experiment]] = {}
    for each, key in zip(experiments, keys, strict=True):
        seeds = groups.setdefault(_label(each, key, differing), {})
        seed = int(each.settings.get("seed", 0))
        if seed in seeds:
            raise ComparisonError(
                f"{seeds[seed].name!r} and {each.name!r} have the same settings and seed {seed}: "
                "name one of them"
            )
        seeds[seed] = each
    return [
        Group(label, ordered, {seed: measures_of(each, to) for seed, each in ordered.items()})
        for label, seeds in groups.items()
        for ordered in [dict(sorted(seeds.items()))]
    ]


def _check(experiments: Sequence[Experiment]) -> None:
    empty = [each.name for each in experiments if not any(score for _, score in each.scores())]
    if empty:
        raise ComparisonError(f"no evaluated round yet: {', '.join(empty)}. Leave them out")
    by_score: dict[str, list[str]] = {}
    for each in experiments:
        by_score.setdefault(each.headline.name, []).append(each.name)
    if len(by_score) > 1:
        kinds = "; ".join(f"{name} of {', '.join(names)}" for name, names in by_score.items())
        raise ComparisonError(
            f"they are judged by different scores ({kinds}): compare those of one score"
        )


def _key(experiment: Experiment) -> dict[str, Any]:
    return {k: v for k, v in experiment.settings.items() if k not in NOT_SETTINGS}


def _label(experiment: Experiment, key: Mapping[str, Any], differing: Sequence[str]) -> str:
    parts = [
        str(key.get(name, "?")) if name == "algorithm" else f"{name}={key.get(name, '?')}"
        for name in sorted(differing, key=lambda name: (name != "algorithm", name))
    ]
    return ", ".join(parts) or experiment.algorithm or experiment.name


def _sum(lines: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Return megabytes and seconds of rounds."""
    size = seconds = 0.0
    for line in lines:
        size += sum(number_at(line, "bytes", way) or 0 for way in ("sent", "received"))
        seconds += number_at(line, "seconds", "total") or 0
    return size / 1e6, seconds

"""Who took part, who was refused and why, and what was alarming: read off the rounds' lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.moonflower.experiments.experiment import Experiment
from scripts.moonflower.experiments.metrics_file import Line, at, number_at
from scripts.moonflower.pages.timeline import rounds_text

PHASES = (("training", ()), ("evaluation", ("evaluation",)))
MOST_REASONS = 60
"""On a page; the rest are counted."""


@dataclass
class Client:
    """What a run knows of one client.

    Attributes
    ----------
    name : str
    examples : int or None
        For training, as it said when the run began; None if it joined later.
    trained, refused, missing, excluded : list[int]
        Rounds of training: its reply counted, was refused, did not come, was not asked for.
    last, lowest : tuple[int, float] or None
        (round, headline): its newest, and its worst.
    """

    name: str
    examples: int | None = None
    trained: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    excluded: list[int] = field(default_factory=list)
    last: tuple[int, float] | None = None
    lowest: tuple[int, float] | None = None

    @property
    def refused_in(self) -> str:
        """The rounds in which it was refused, in words."""
        return rounds_text(self.refused)


@dataclass(frozen=True)
class Refusal:
    """A client's replies that were left out for one reason."""

    client: str
    phase: str
    reason: str
    rounds: str


@dataclass(frozen=True)
class Alarm:
    """A sentence, and the rounds in which it was said."""

    text: str
    rounds: str
    last: int


def clients_of(experiment: Experiment) -> list[Client]:
    """Return every client, the one with the worst newest score first."""
    found: dict[str, Client] = {}
    for known in experiment.clients:
        counts = known.get("examples-per-label")
        whole = [n for n in counts if isinstance(n, int)] if isinstance(counts, list) else []
        found[known["name"]] = Client(known["name"], sum(whole))
    sign = 1 if experiment.headline.more_is_better else -1
    for line in experiment.lines:
        for key, attribute in (
            ("participants", "trained"),
            ("refused", "refused"),
            ("missing", "missing"),
            ("excluded", "excluded"),
        ):
            for name in names_in(line.get(key)):
                getattr(found.setdefault(name, Client(name)), attribute).append(line["round"])
        for name in names_in(at(line, "clients", "per-client")):
            score = number_at(line, "clients", "per-client", name)
            if score is None:
                continue
            client = found.setdefault(name, Client(name))
            client.last = (line["round"], score)
            if client.lowest is None or sign * score < sign * client.lowest[1]:
                client.lowest = client.last
    return sorted(
        found.values(), key=lambda c: (c.last is None, sign * c.last[1] if c.last else 0, c.name)
    )


def refusals_of(lines: Sequence[Line]) -> list[Refusal]:
    """Return who was refused, in which phase, why and when; the newest first."""
    rounds: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for line in lines:
        for phase, path in PHASES:
            refused = at(line, *path, "refused")
            for name, reason in refused.items() if isinstance(refused, Mapping) else ():
                rounds[str(name), phase, str(reason)].append(line["round"])
            for name in names_in(at(line, *path, "missing")):
                rounds[name, phase, "no answer in time"].append(line["round"])
    newest = sorted(rounds.items(), key=lambda each: (-each[1][-1], each[0]))
    return [Refusal(*key, rounds_text(numbers)) for key, numbers in newest]


def alarms_of(lines: Sequence[Line]) -> list[Alarm]:
    """Return the alarms, each sentence once, the newest first."""
    rounds: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        for text in _texts(line.get("alarms")):
            rounds[text].append(line["round"])
    newest = sorted(rounds.items(), key=lambda each: (-each[1][-1], each[0]))
    return [Alarm(text, rounds_text(numbers), numbers[-1]) for text, numbers in newest]


def events_of(lines: Sequence[Line]) -> dict[str, list[int]]:
    """Return the rounds of what went wrong, by kind; a round once for each of its events."""
    events: dict[str, list[int]] = {
        name: [] for name in ("alarm", "played again", "refused", "no answer", "left out")
    }
    for line in lines:
        number = line["round"]
        events["alarm"] += [number] * len(_texts(line.get("alarms")))
        events["played again"] += [number] * bool(line.get("taken-back"))
        for _, path in PHASES:
            events["refused"] += [number] * len(list(names_in(at(line, *path, "refused"))))
            events["no answer"] += [number] * len(list(names_in(at(line, *path, "missing"))))
        events["left out"] += [number] * len(list(names_in(line.get("excluded"))))
    return events


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of a list, or of a mapping's keys; none of anything else."""
    for name in value if isinstance(value, list | Mapping) else ():
        yield str(name)


def _texts(value: Any) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []

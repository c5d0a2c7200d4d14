"""An experiment in sentences and tables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.moonflower.experiments.experiment import Experiment, State
from scripts.moonflower.experiments.metrics_file import at, number_at
from scripts.moonflower.pages.participation import clients_of
from scripts.moonflower.pages.scales import score_text, size_text, time_text
from scripts.moonflower.repository import default_run_config


@dataclass(frozen=True)
class Tile:
    """One number that is looked at first."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """A setting that is not its default."""

    name: str
    value: str
    default: str


def result_of(experiment: Experiment) -> str:
    """Return the result in a sentence or three."""
    rounds = f"{experiment.rounds} of {experiment.num_rounds} rounds"
    how = {
        State.RUNNING: f"The run is going on: {rounds} are over.",
        State.FINISHED: f"The run has finished after {experiment.rounds} rounds.",
        State.STOPPED: f"The run has stopped after {rounds}.",
        State.CRASHED: f"The run broke off after {rounds}.",
    }[experiment.state]
    if experiment.state is State.FINISHED and experiment.rounds < experiment.num_rounds:
        how = f"The run has finished early, after {rounds}."
    evaluated = next(
        (line for line in reversed(experiment.lines) if line.get("global") or line.get("clients")),
        None,
    )
    if evaluated is None:
        return f"{how} Nothing has been measured yet."
    name = experiment.headline.name
    score, mean = number_at(evaluated, "global", name), number_at(evaluated, "clients", "mean")
    parts = [how]
    if score is not None:
        parts.append(f"The global model's {name} is {score_text(score)} on the server's test set.")
    if mean is not None:
        std, worst = (
            number_at(evaluated, "clients", "std"),
            at(evaluated, "clients", "worst", "name"),
        )
        count = len(at(evaluated, "clients", "per-client") or ())
        lowest = number_at(evaluated, "clients", "worst", name)
        parts.append(
            f"Over {count} clients its {name} is {score_text(mean)} on average "
            f"(± {score_text(std)}); the worst is {worst} with {score_text(lowest)}."
        )
    if experiment.best and experiment.best[0] != evaluated["round"]:
        number, best = experiment.best
        parts.append(f"The best model was that of round {number}, with {score_text(best)}.")
    return " ".join(parts)


def tiles_of(experiment: Experiment) -> list[Tile]:
    """Return the numbers at the top of a page."""
    lines, clients = experiment.lines, clients_of(experiment)
    refused = sum(len(client.refused) for client in clients)
    seconds = sum(number_at(line, "seconds", "total") or 0.0 for line in lines)
    sizes = [
        sum(number_at(line, "bytes", key) or 0 for line in lines) for key in ("sent", "received")
    ]
    tiles = [Tile("rounds", f"{experiment.rounds} / {experiment.num_rounds or '?'}")]
    if experiment.best:
        tiles.append(
            Tile(
                f"best {experiment.headline.name}",
                score_text(experiment.best[1]),
                f"round {experiment.best[0]}",
            )
        )
    worst = next((client for client in clients if client.last), None)
    if worst and worst.last:
        tiles.append(Tile("worst client", score_text(worst.last[1]), worst.name))
    online = experiment.activity.get("clients")
    if experiment.state is State.RUNNING and isinstance(online, list):
        tiles.append(Tile("clients online", str(len(online))))
    else:
        tiles.append(Tile("clients", str(len(clients))))
    tiles.append(Tile("replies refused", str(refused), "in training"))
    tiles.append(Tile("alarms", str(sum(len(line.get("alarms") or ()) for line in lines))))
    tiles.append(Tile("time in rounds", time_text(seconds)))
    tiles.append(Tile("sent / received", f"{size_text(sizes[0])} / {size_text(sizes[1])}"))
    return tiles


def differences_of(experiment: Experiment) -> list[Difference]:
    """Return the settings that are not today's defaults, without the experiment's name."""
    defaults, settings = default_run_config(), experiment.settings
    return [
        Difference(
            name, _shown(value), _shown(defaults[name]) if name in defaults else "no such setting"
        )
        for name, value in sorted(settings.items())
        if name not in ("experiment", "resume") and defaults.get(name, _ABSENT) != value
    ]


def between(experiments: Sequence[Experiment]) -> list[tuple[str, list[str]]]:
    """Return the settings in which experiments differ, with the value of each."""
    all_settings = [experiment.settings for experiment in experiments]
    names = sorted(
        {name for settings in all_settings for name in settings} - {"experiment", "resume"}
    )
    rows = [(name, [settings.get(name, _ABSENT) for settings in all_settings]) for name in names]
    return [
        (name, ["-" if value is _ABSENT else _shown(value) for value in values])
        for name, values in rows
        if any(value != values[0] for value in values)
    ]


def command_of(experiment: Experiment) -> str:
    """Return a command that does the same again, as far as data and machines are the same."""
    if not experiment.settings:
        return ""
    simulated = simulated_clients(experiment)
    defaults = default_run_config()
    parts = ["moonflower"]
    parts += ["simulate", "--clients", str(simulated)] if simulated else ["run", "SUPERLINK"]
    for name, value in sorted(experiment.settings.items()):
        if name in ("experiment", "resume") or defaults.get(name, _ABSENT) == value:
            continue
        parts += ["-c", f"{name}={_shown(value)}"]
    return shlex.join(parts)


def simulated_clients(experiment: Experiment) -> int:
    """Return among how many clients one data set was divided; 0 where sites have their own."""
    for client in experiment.clients:
        _, _, count = str(client.get("partition", "")).partition(" of ")
        if count.isdigit():
            return int(count)
    is_old = all("partition" not in client for client in experiment.clients)
    return len(experiment.clients) if is_old else 0


def facts_of(experiment: Experiment) -> list[tuple[str, str]]:
    """Return what was run: algorithm, data, model, seed, times, versions."""
    settings = experiment.settings
    facts = [
        (name, str(settings[key]))
        for name, key in (
            ("algorithm", "algorithm"), ("task", "task.name"), ("data", "data.source"),
            ("model", "model.name"), ("seed", "seed"),
        )
        if key in settings
    ]  # fmt: skip
    if experiment.started:
        facts.append(("begun", f"{experiment.started:%Y-%m-%d %H:%M:%S %Z}"))
    facts.append(("last change", f"{experiment.changed:%Y-%m-%d %H:%M:%S %Z}"))
    resumed = experiment.facts.get("resumed")
    for each in resumed if isinstance(resumed, list) else ():
        facts.append(("resumed", str(at(each, "time"))))
    facts += list(experiment.versions.items())
    return [*facts, ("id", str(experiment.facts.get("id", "")))]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


_ABSENT = object()

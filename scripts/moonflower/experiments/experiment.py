"""One experiment's folder as anybody may look at it: read only, whatever state it is in."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from common.config import flat
from common.errors import MoonflowerError
from common.files import DamagedFileError, read_json
from scripts.moonflower.experiments.metrics_file import Line, MetricsFile, at, number_at, series
from server_app.experiment.layout import (
    ACTIVITY_FILE,
    FINAL,
    LOCK_FILE,
    METRICS_FILE,
    SETTINGS_FILE,
)


class NotAnExperimentError(MoonflowerError):
    """A folder holds no experiment, or none that can be read; the message says why."""


class State(StrEnum):
    """What became of a run.

    ``running``: a server holds the folder's lock. ``finished``: the model of its last round is in
    ``final/``. ``stopped``: it ended before that in an orderly way, such as with an error that it
    reported. ``crashed``: it ended without a word, in the middle of a round. The last two can be
    resumed.
    """

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Headline:
    """The score that models of an experiment are chosen by; ``name`` is "" before it is known."""

    name: str
    more_is_better: bool = True


@dataclass(frozen=True)
class Experiment:
    """An experiment at one moment.

    Attributes
    ----------
    folder : Path
    facts : Mapping[str, Any]
        Content of ``settings.json``; empty where the server has not written it yet.
    lines : Sequence[Line]
        The rounds that are over, ascending.
    state : State
    activity : Mapping[str, Any]
        What a running server is doing, or why one stopped: see ``server_app.experiment.activity``.
    problems : Sequence[str]
        What of the folder is damaged, one sentence each.
    """

    folder: Path
    facts: Mapping[str, Any]
    lines: Sequence[Line]
    state: State
    activity: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The folder's name, which is the experiment's."""
        return self.folder.name

    @property
    def settings(self) -> dict[str, Any]:
        """The run config, flat: ``{"moon.mu": 1.0}``."""
        settings = self.facts.get("settings")
        return flat(settings) if isinstance(settings, Mapping) else {}

    @property
    def algorithm(self) -> str:
        """Its name, "" if it is not known."""
        return str(self.settings.get("algorithm", ""))

    @property
    def versions(self) -> dict[str, str]:
        """Of Python and packages, those that computed the newest rounds."""
        resumed = self.facts.get("resumed") or [self.facts]
        found = at(resumed[-1], "versions") if isinstance(resumed, list) else None
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}

    @property
    def clients(self) -> list[Mapping[str, Any]]:
        """Who was there when it began or was resumed: ``name``, ``examples-per-label``, ..."""
        clients = self.facts.get("clients")
        known = clients if isinstance(clients, list) else []
        return [each for each in known if isinstance(at(each, "name"), str)]

    @property
    def started(self) -> datetime | None:
        """When it began, with time zone."""
        return _time(self.facts.get("started"))

    @property
    def changed(self) -> datetime:
        """When a round was last finished; before the first one, when the folder was made."""
        for path in (self.folder / METRICS_FILE, self.folder / SETTINGS_FILE, self.folder):
            try:
                return datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except OSError:
                continue
        return datetime.now(UTC)

    @property
    def rounds(self) -> int:
        """The last round that is over; 0 before the first."""
        return int(self.lines[-1]["round"]) if self.lines else 0

    @property
    def num_rounds(self) -> int:
        """How many there are to be; 0 if it is not known."""
        wanted = self.settings.get("num-rounds")
        return wanted if isinstance(wanted, int) else 0

    @property
    def why(self) -> str:
        """Why it stopped, as far as it is known; "" otherwise."""
        return str(self.activity.get("ended") or "") if self.state is State.STOPPED else ""

    @property
    def headline(self) -> Headline:
        """See :class:`Headline`; folders of version 0.1 don't say it, their lines do."""
        name = at(self.facts, "headline", "name")
        if isinstance(name, str):
            return Headline(name, at(self.facts, "headline", "more-is-better") is not False)
        return next((found for line in self.lines if (found := _headline_of(line)).name), _UNKNOWN)

    @property
    def best(self) -> tuple[int, float] | None:
        """Round and headline of the best model, as the server chooses it; of equal the first."""
        scores = [(n, score) for n, score in self.scores() if score is not None]
        sign = 1 if self.headline.more_is_better else -1
        return max(scores, key=lambda each: (sign * each[1], -each[0]), default=None)

    def scores(self) -> list[tuple[int, float | None]]:
        """Return (round, headline) of every evaluated round: of the global model, else the mean."""
        name = self.headline.name
        return [
            (line["round"], score_of(line, name))
            for line in self.lines
            if line.get("global") or line.get("clients")
        ]

    def series(self, *path: str) -> list[tuple[int, float | None]]:
        """Return (round, number) at a path of the lines, such as ``"train", "loss"``."""
        return series(self.lines, *path)

    def size(self) -> int:
        """Return the bytes of all files of the folder; links are not followed."""
        return size_of(self.folder)


_UNKNOWN = Headline("")


def score_of(line: Line, headline: str) -> float | None:
    """Return what the server chooses a round's model by: global headline, else clients' mean."""
    score = number_at(line, "global", headline)
    return number_at(line, "clients", "mean") if score is None else score


def read_experiment(folder: Path, metrics: MetricsFile | None = None) -> Experiment:
    """Read an experiment's folder as it is now.

    Parameters
    ----------
    folder : Path
    metrics : MetricsFile or None
        Of this folder, if it was read before: only what is new is read then.

    Raises
    ------
    NotAnExperimentError
        There is no folder, or no experiment in it, or it may not be read.
    """
    problems: list[str] = []
    metrics = metrics or MetricsFile(folder / METRICS_FILE)
    try:
        if not folder.is_dir():
            raise NotAnExperimentError(f"there is no experiment {folder.name!r} in {folder.parent}")
        if not is_experiment(folder):
            raise NotAnExperimentError(
                f"{folder} is no experiment: it has neither {SETTINGS_FILE} nor {METRICS_FILE}"
            )
        running = is_locked(folder)
        metrics.refresh()
        facts = _object(folder / SETTINGS_FILE, problems)
        activity = _object(folder / ACTIVITY_FILE, problems)
        problems += metrics.problems
        if metrics.lines and not facts:
            problems.append(f"{SETTINGS_FILE} is missing: nothing says which settings it had")
        final = _object(folder / FINAL / "model.json", problems)
    except OSError as error:
        raise NotAnExperimentError(f"{folder} can't be read: {error}") from error
    rounds = metrics.lines[-1]["round"] if metrics.lines else 0
    state = _state(running, rounds, at(final, "facts", "round"), activity)
    return Experiment(folder, facts, list(metrics.lines), state, activity, problems)


def is_experiment(folder: Path) -> bool:
    """Return whether a server has begun an experiment here; a link is none."""
    names = (SETTINGS_FILE, METRICS_FILE, LOCK_FILE)
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and any((folder / name).is_file() for name in names)
    )


def experiment_folders(output: Path) -> list[Path]:
    """Return the experiments' folders of an output folder, by name; none if it is not there."""
    if not output.is_dir():
        return []
    return sorted(path for path in output.iterdir() if is_experiment(path))


def is_locked(folder: Path) -> bool:
    """Return whether a server works in this folder; looking needs no right to write there."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared, and for a moment: a server that wants it just then asks again.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; links are not followed."""
    return sum(_sizes(path))


def _sizes(path: Path) -> Iterator[int]:
    try:
        if path.is_symlink() or not path.is_dir():
            yield path.lstat().st_size
            return
        entries = list(path.iterdir())
    except OSError:
        return  # gone while we looked, as checkpoints go
    for entry in entries:
        yield from _sizes(entry)


def _state(running: bool, rounds: int, final: object, activity: Mapping[str, Any]) -> State:
    if running:
        return State.RUNNING
    if isinstance(final, int) and final >= rounds:
        return State.FINISHED
    return State.CRASHED if activity and "ended" not in activity else State.STOPPED


def _headline_of(line: Line) -> Headline:
    """Return the headline as a line shows it: the one score of the worst client."""
    worst = at(line, "clients", "worst")
    scores = worst if isinstance(worst, Mapping) else at(line, "global")
    names = scores if isinstance(scores, Mapping) else {}
    name = next((str(key) for key in names if key != "name"), "")
    of_clients = at(line, "clients", "per-client")
    clients = of_clients if isinstance(of_clients, Mapping) else {}
    values = [n for each in clients if (n := number_at(clients, each)) is not None]
    # Where the worst is the largest, less is better.
    largest = bool(values) and number_at(worst, name) == max(values) != min(values)
    return Headline(name, more_is_better=not largest)


def _object(path: Path, problems: list[str]) -> Mapping[str, Any]:
    """Return a JSON object; empty if the file is not there or damaged."""
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (DamagedFileError, RecursionError) as error:
        problems.append(str(error))
        return {}
    if isinstance(content, dict):
        return content
    problems.append(f"{path} is damaged: it holds no object")
    return {}


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)

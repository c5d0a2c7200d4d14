"""``/metrics`` of the dashboard: all experiments of the folder, for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from scripts.moonflower.experiments.experiment import (
    NotAnExperimentError,
    State,
    experiment_folders,
    read_experiment,
)
from scripts.moonflower.experiments.metrics_file import MetricsFile as NewestRounds
from server_app.experiment.layout import METRICS_FILE
from server_app.tracking.destination import Moments, Source
from server_app.tracking.growing_file import MetricsFile
from server_app.tracking.prometheus import Standing, exposition

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_route(output: Path) -> Route:
    """Return the route; each scrape reads the rounds that are new since the one before."""
    standings = _Standings(output)

    def metrics(_request: Request) -> Response:
        return Response(exposition(standings.now()), media_type=CONTENT_TYPE)

    return Route("/metrics", metrics)


@dataclass
class _Counted:
    """The rounds of one file that were read."""

    inode: int
    lines: MetricsFile
    standing: Standing
    moments: Moments


@dataclass
class _Standings:
    output: Path
    _counted: dict[Path, _Counted] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def now(self) -> list[Standing]:
        """Return where each experiment stands; one that can't be read is left out."""
        found = []
        with self._lock:
            for folder in experiment_folders(self.output):
                try:
                    found.append(self._of(folder))
                # Lines of another program, or of a version to come, are no reason to hide the rest.
                except (NotAnExperimentError, OSError, LookupError, TypeError, ValueError):
                    self._counted.pop(folder, None)
        return found

    def _of(self, folder: Path) -> Standing:
        path = folder / METRICS_FILE
        experiment = read_experiment(folder, NewestRounds(path, newest_only=True))
        status = path.lstat() if path.is_file() and not path.is_symlink() else None
        inode, length = (status.st_ino, status.st_size) if status else (-1, 0)
        counted = self._counted.get(folder)
        # A server that resumes puts another file in its place; one that is copied back is shorter.
        if counted is None or counted.inode != inode or counted.lines.offset > length:
            source = Source(folder)
            counted = _Counted(inode, MetricsFile(path), Standing(folder.name), Moments(source))
            self._counted[folder] = counted
        for line in counted.lines.new() if inode >= 0 else ():
            counted.standing.add(line, counted.moments.of(line))
        counted.standing.rounds = experiment.num_rounds
        counted.standing.running = experiment.state is State.RUNNING
        counted.standing.finished = experiment.state is State.FINISHED
        return counted.standing

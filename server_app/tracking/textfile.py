"""A text file for Prometheus's node_exporter: no port is opened by a run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from common.files import write_bytes
from server_app.tracking.destination import PROMETHEUS_VARIABLE, Moments, Source
from server_app.tracking.numbers import Line
from server_app.tracking.prometheus import Standing, exposition

READABLE = 0o644
"""For node_exporter, which is another user: whatever the umask of the SuperLink is."""


def textfile_path(folder: Path, experiment: str) -> Path:
    """Return where the file of an experiment lies; node_exporter reads ``*.prom``."""
    return folder / f"moonflower-{experiment}.prom"


class Textfile:
    """The experiment's file, written whole after every round."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._path = textfile_path(Path(source.out or os.environ[PROMETHEUS_VARIABLE]), source.name)

    @property
    def where(self) -> str:
        """The file."""
        return str(self._path)

    def open(self, lines: Iterable[Line]) -> None:
        """Count all rounds so far."""
        rounds = self._source.facts().get("settings", {}).get("num-rounds", 0)
        self._standing = Standing(self._source.name, rounds)
        self._moments = Moments(self._source)
        for line in lines:
            self._standing.add(line, self._moments.of(line))
        self._write()

    def add(self, line: Line) -> None:
        """Take a round."""
        self._standing.add(line, self._moments.of(line))
        self._write()

    def close(self, *, finished: bool) -> None:
        """Say that nobody works on it any more."""
        self._standing.running, self._standing.finished = False, finished
        self._write()

    def _write(self) -> None:
        write_bytes(self._path, exposition([self._standing]), mode=READABLE)

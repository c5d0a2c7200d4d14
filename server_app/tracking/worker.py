"""The process that writes a tracker: ``python -m server_app.tracking.worker NAME FOLDER``.

What it writes is read from ``metrics.jsonl``, so nothing has to be handed over, and what a tracker
missed while it was away is still there when it is back. Standard input is a bell: a byte for every
round, ``F`` when all were played, and its end when the run has ended, killed or not. Standard
output answers with a line of JSON: ``{"at": round}``, or ``{"failed": reason}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO

from filelock import FileLock

from server_app.experiment.layout import METRICS_FILE
from server_app.tracking.destination import Destination, Source, make_destination
from server_app.tracking.growing_file import MetricsFile

ROUND, FINISHED = b"r", b"F"
LAST_SECONDS = 30
"""After the end of the run, whether or not the tracker has taken all."""

LOCK_SECONDS = 120.0
"""For the worker of a run that was killed, which may still be writing its last rounds."""


@dataclass
class Follower:
    """Keeps one destination level with a file that grows.

    Attributes
    ----------
    lines : MetricsFile
    make : Callable[[], Destination]
        What it raises is a failure like any other.
    answer : Callable[[dict], None]
        Takes what is to be said to the run.
    """

    lines: MetricsFile
    make: Callable[[], Destination]
    answer: Callable[[dict[str, object]], None]
    _destination: Destination | None = field(default=None, init=False)

    def catch_up(self) -> None:
        """Write what is new. After a failure, open it again and compare, since it may have half."""
        try:
            if self._destination is None:
                self.lines.rewind()
                destination = self.make()
                destination.open(self.lines.new())
                self._destination = destination
            else:
                for line in self.lines.new():
                    self._destination.add(line)
        except Exception as error:  # whatever it is, the run goes on
            self._fail(error)
        else:
            self.answer({"at": self.lines.round})

    def close(self, *, finished: bool) -> None:
        """Write what is left, and the end."""
        self.catch_up()
        if self._destination is None:
            return
        try:
            self._destination.close(finished=finished)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._destination = None
        self.answer({"failed": f"{type(error).__name__}: {error}"})


def follow(follower: Follower, bell: BinaryIO, ended: Callable[[], object] = int) -> None:
    """Catch up whenever the bell rings, until it ends; ``ended`` is called then."""
    rung = b""
    follower.catch_up()
    while new := os.read(bell.fileno(), 65536):
        rung = new[-1:]
        if rung == ROUND:
            follower.catch_up()
    ended()
    follower.close(finished=rung == FINISHED)


def main() -> None:
    """Write one tracker until the run has ended."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what trackers print is no answer
    os.nice(10)
    source = Source(folder)
    with FileLock(lock_path(folder, name), timeout=LOCK_SECONDS):
        follower = Follower(
            MetricsFile(folder / METRICS_FILE),
            lambda: make_destination(name, source),
            lambda said: _say(answers, said),
        )
        follow(follower, sys.stdin.buffer, lambda: signal.alarm(LAST_SECONDS))
    # Trackers leave threads that wait for servers; all is written.
    os._exit(0)


def lock_path(folder: Path, name: str) -> Path:
    """Return the lock that whoever writes an experiment's ``name`` holds."""
    return folder / f".tracking-{name}.lock"


def _say(answers: TextIO, said: dict[str, object]) -> None:
    try:
        print(json.dumps(said), file=answers)
    except BrokenPipeError:  # the run is gone, which is no reason to lose its last rounds
        return


if __name__ == "__main__":
    main()

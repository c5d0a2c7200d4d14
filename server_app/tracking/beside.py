"""Trackers beside the rounds: started, told of each round, asked how it goes, and ended.

Each is written by a process of its own (:mod:`server_app.tracking.worker`). A run waits for none of
them, whatever happens there: it rings a bell without waiting, and looks at what was answered.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from common.logs import NAME
from common.text import safe_text
from server_app.report.alarms import tracking_alarm
from server_app.tracking.worker import FINISHED, LAST_SECONDS, ROUND

log = logging.getLogger(NAME)

SLOW_SECONDS = 60.0
"""Without a step forward while rounds wait, a tracker counts as hanging."""

END_SECONDS = 5.0
"""For all trackers together at the end of a run: what they lack then can be exported."""

_ROOT = Path(__file__).resolve().parents[2]


class Tracking:
    """The trackers of a run, each in its process.

    Parameters
    ----------
    folder : Path
        The experiment's; its ``metrics.jsonl`` holds the rounds so far.
    names : Sequence[str]
        Of :data:`server_app.tracking.destination.KINDS`; none: nothing is started.
    rounds : int
        How many there are so far.
    now : Callable[[], float]
        Seconds.
    """

    def __init__(
        self,
        folder: Path = Path(),
        names: Sequence[str] = (),
        rounds: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now, self._rounds = now, rounds
        self._workers: list[_Worker] = []
        self._not_started: dict[str, str] = {}
        for name in names:
            try:
                self._workers.append(_Worker(name, folder, rounds, now()))
            except OSError as error:
                self._not_started[name] = f"its process can't be started: {error}"

    def round_written(self) -> None:
        """Say that ``metrics.jsonl`` has grown."""
        self._rounds += 1
        for worker in self._workers:
            worker.ring(self._rounds, self._now())

    def complaints(self) -> Mapping[str, str]:
        """Return what has gone wrong with a tracker since the last call, each tracker once a run.

        It goes on trying all the same: a server that comes back gets what it has missed.
        """
        found, self._not_started = self._not_started, {}
        found |= {worker.name: worker.complaint(self._now()) for worker in self._workers}
        return {name: reason for name, reason in found.items() if reason}

    def end(self, *, finished: bool = False) -> None:
        """Let the trackers write what they have, and wait a few seconds for it.

        One that needs longer goes on by itself, for :data:`LAST_SECONDS` at most.
        """
        for worker in self._workers:
            worker.hang_up(finished=finished)
        deadline = time.monotonic() + END_SECONDS
        for worker in self._workers:
            try:
                reason = worker.end(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                log.info(
                    "tracking to %s goes on for up to %d s; if rounds are missing there then, "
                    "moonflower export EXPERIMENT --to %s writes them",
                    *(worker.name, LAST_SECONDS, worker.name),
                )
            else:
                if reason:
                    log.warning("%s", tracking_alarm(worker.name, reason))
        self._workers = []


@contextmanager
def tracked(folder: Path, names: Sequence[str], rounds: int) -> Iterator[Tracking]:
    """Write trackers while the block runs; one that ends with an exception is not finished.

    Parameters are those of :class:`Tracking`.
    """
    tracking, finished = Tracking(folder, names, rounds), False
    try:
        yield tracking
        finished = True
    finally:
        tracking.end(finished=finished)


def worker_command(name: str, folder: Path) -> list[str]:
    """Return how a worker is started; -P: nothing is imported from where it runs."""
    return [sys.executable, "-P", "-m", "server_app.tracking.worker", name, str(folder)]


class _Worker:
    """One tracker's process, as the run sees it.

    ``_wanted`` is the round that it should have reached, ``_waiting_since`` when it last got on, or
    when there was something to do for it; None: it is level.
    """

    def __init__(self, name: str, folder: Path, rounds: int, now: float) -> None:
        self.name = name
        self._complained = False
        self._waiting_since: float | None = now
        self._said = b""
        self._failed = ""
        self._wanted = rounds
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603 (this program, and a folder of ours)
            worker_command(name, folder),
            cwd=folder,
            env={**_PATIENCE, **os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the run's, which then ends this one
        )
        os.set_blocking(self._bell.fileno(), False)
        os.set_blocking(self._answers.fileno(), False)

    @property
    def _bell(self) -> IO[bytes]:
        return cast(IO[bytes], self._process.stdin)

    @property
    def _answers(self) -> IO[bytes]:
        return cast(IO[bytes], self._process.stdout)

    def ring(self, rounds: int, now: float) -> None:
        """Say that so many rounds are there."""
        self._wanted = rounds
        if self._waiting_since is None:
            self._waiting_since = now
        self._send(ROUND)

    def _send(self, what: bytes) -> None:
        # Full: the worker sleeps, and has enough to wake up for. Broken: it has ended.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._bell.fileno(), what)

    def complaint(self, now: float) -> str:
        """Return what is wrong, the first time that anything is."""
        self._listen(now)
        if self._complained:
            return ""
        reason = self._failed
        if not reason and (code := self._process.poll()) is not None:
            reason = f"its process has ended with exit code {code}"
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        if not reason and waited > SLOW_SECONDS:
            reason = f"it has taken nothing for {waited:.0f} s"
        self._complained = bool(reason)
        return reason

    def hang_up(self, *, finished: bool) -> None:
        """Say that the run has ended."""
        if finished:
            self._send(FINISHED)
        self._bell.close()

    def end(self, seconds: float) -> str:
        """Wait for it; return why it is not complete, if nobody was told before, or "".

        Raises
        ------
        TimeoutError
            It is still at work, and nothing speaks against it. What hangs is ended.
        """
        code: int | None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        self._listen(0.0)
        self._answers.close()
        if code is None and not (self._complained or self._failed):
            raise TimeoutError
        self._process.kill()
        self._process.wait()
        if self._complained or (code == 0 and not self._failed):
            return ""
        return self._failed or f"exit code {code}"

    def _listen(self, now: float) -> None:
        """Take the answers so far."""
        with suppress(BlockingIOError):
            while new := os.read(self._answers.fileno(), 65536):
                self._said += new
        *whole, self._said = self._said.split(b"\n")
        for line in whole:
            said = json.loads(line)
            if "failed" in said:
                self._failed = safe_text(str(said["failed"]), 300)
            else:
                self._failed = ""
                self._waiting_since = None if said["at"] >= self._wanted else now


_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "WANDB_SILENT": "true",
    "OMP_NUM_THREADS": "1",
}
"""A server that is away is asked again at the next round anyway. The environment's own wins."""

"""Run cells, several at a time, each in a ``moonflower simulate`` of its own.

A process for each cell, because a simulation ends everything below its own process when it is
over. They are started and watched from one thread: the kernel takes the thread that starts a
process for its parent, and ends the process with it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from scripts.moonflower.durations import SAY_SECONDS, duration
from scripts.moonflower.research.reproduce.cells import Cell
from scripts.moonflower.research.reproduce.record import Record, read_record
from scripts.moonflower.research.reproduce.remaining import remaining_seconds

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
"""For a simulation that was asked to end: Ray's processes take some seconds each."""


class Running(Protocol):
    """A cell that runs: what of ``subprocess.Popen`` is needed."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


Start = Callable[[Cell, bool], Running]
"""Starts a cell; the flag says whether it is resumed."""


@dataclass
class Runner:
    """Runs cells to their end.

    Attributes
    ----------
    runs : Path
        Where the experiments' folders are.
    jobs : int
        Cells at a time.
    start : Start
    say : Callable[[str], None]
        Takes lines of progress.
    finished : Callable[[Record], object]
        Called when a cell is.
    clock, sleep
        Time.
    """

    runs: Path
    jobs: int
    start: Start
    say: Callable[[str], None]
    finished: Callable[[Record], object]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _running: dict[str, tuple[Cell, Running]] = field(default_factory=dict)

    def run(self, cells: Sequence[Cell]) -> list[Cell]:
        """Run those of ``cells`` that are not finished; return those that failed.

        A cell that was begun goes on after its last round. One that fails does not stop the
        others. If this is interrupted, the cells that run are ended, which loses at most the round
        they were in.
        """
        todo = deque(cell for cell in cells if not self._read(cell).finished)
        done = len(cells) - len(todo)
        if done:
            self.say(f"{done} of {len(cells)} cells are finished already")
        failed: list[Cell] = []
        said = self.clock()
        try:
            while todo or self._running:
                while todo and len(self._running) < self.jobs:
                    self._begin(todo.popleft())
                failed += self._collect()
                if self.clock() - said >= SAY_SECONDS:
                    said = self.clock()
                    self._say_where(cells, todo)
                if self._running:
                    self.sleep(POLL_SECONDS)
        finally:
            self._end_all()
        return failed

    def _read(self, cell: Cell) -> Record:
        return read_record(cell, self.runs)

    def _begin(self, cell: Cell) -> None:
        record = self._read(cell)
        how = f"goes on after round {record.rounds}" if record.exists else "begins"
        self.say(f"{cell.experiment} {how} ({cell.rounds} rounds)")
        self._running[cell.experiment] = (cell, self.start(cell, record.exists))

    def _collect(self) -> list[Cell]:
        """Take the cells that have ended; return those that failed."""
        failed = []
        for name, (cell, running) in list(self._running.items()):
            code = running.poll()
            if code is None:
                continue
            del self._running[name]
            record = self._read(cell)
            if code == 0 and record.finished:
                self.say(f"{name} is finished: {duration(record.seconds)} of training")
                self.finished(record)
            else:
                self.say(f"{name} FAILED after round {record.rounds}, exit code {code}")
                failed.append(cell)
        return failed

    def _say_where(self, cells: Sequence[Cell], todo: Sequence[Cell]) -> None:
        running = [self._read(cell) for cell, _ in self._running.values()]
        known = [self._read(cell) for cell in cells]
        left = remaining_seconds([*running, *map(self._read, todo)], known, self.jobs)
        rounds = ", ".join(
            f"{each.cell.row.name}/{each.cell.column.name}/{each.cell.seed} "
            f"{each.rounds}/{each.cell.rounds}"
            for each in running
        )
        done = len(cells) - len(todo) - len(running)
        about = "" if left is None else f"; about {duration(left)} left"
        self.say(f"{done} of {len(cells)} cells done; rounds: {rounds or 'none'}{about}")

    def _end_all(self) -> None:
        for _, running in self._running.values():
            running.terminate()
        deadline = self.clock() + PATIENCE_SECONDS
        while self._alive() and self.clock() < deadline:
            self.sleep(0.1)
        for running in self._alive():
            running.kill()
        self._running.clear()

    def _alive(self) -> list[Running]:
        return [running for _, running in self._running.values() if running.poll() is None]

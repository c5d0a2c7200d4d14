"""Cells run several at a time, go on where they were, and end when this is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.moonflower.interruption import InterruptedRunError
from scripts.moonflower.research.reproduce.cells import Cell
from scripts.moonflower.research.reproduce.record import Record, read_record
from scripts.moonflower.research.reproduce.runner import PATIENCE_SECONDS, Runner
from tests.scripts.research.reproduce.tables import cells, write_run


class FakeRun:
    """A cell that plays one round whenever somebody looks, until its end or ``dies_after``."""

    def __init__(self, runs: Path, cell: Cell, dies_after: int, *, deaf: bool = False) -> None:
        self.runs, self.cell, self.dies_after, self.deaf = runs, cell, dies_after, deaf
        self.code: int | None = None
        self.asked = self.killed = False

    def poll(self) -> int | None:
        rounds = read_record(self.cell, self.runs).rounds
        if self.code is not None or self.asked:
            return self.code
        if rounds >= self.cell.rounds:
            self.code = 0
        elif rounds >= self.dies_after:
            self.code = -9
        else:
            write_run(self.runs, self.cell, [0.5] * (rounds + 1))
        return self.code

    def terminate(self) -> None:
        self.asked = True
        self.code = None if self.deaf else 143

    def kill(self) -> None:
        self.killed, self.code = True, -9


class Fakes:
    """Starts fake runs and remembers them."""

    def __init__(self, runs: Path, dies_after: int = 99, *, deaf: bool = False) -> None:
        self.runs, self.dies_after, self.deaf = runs, dies_after, deaf
        self.started: list[tuple[str, bool, int]] = []
        self.alive: list[FakeRun] = []
        self.most_at_once = 0
        self.said: list[str] = []
        self.finished: list[str] = []
        self.time = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def start(self, cell: Cell, resume: bool) -> FakeRun:
        run = FakeRun(self.runs, cell, self.dies_after, deaf=self.deaf)
        self.started.append((cell.experiment, resume, read_record(cell, self.runs).rounds))
        self.alive.append(run)
        running = sum(each.code is None for each in self.alive)
        self.most_at_once = max(self.most_at_once, running)
        return run

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.on_sleep()

    def done(self, record: Record) -> None:
        self.finished.append(record.cell.experiment)

    def run(self, chosen: list[Cell], jobs: int = 2) -> list[Cell]:
        runner = Runner(
            self.runs,
            jobs,
            self.start,
            self.said.append,
            self.done,
            clock=lambda: self.time,
            sleep=self.sleep,
        )
        return runner.run(chosen)


def test_every_cell_is_run_once_and_never_more_than_jobs_at_a_time(tmp_path: Path) -> None:
    fakes = Fakes(tmp_path)
    assert fakes.run(cells(), jobs=3) == []
    names = [cell.experiment for cell in cells()]
    assert [name for name, _, _ in fakes.started] == names
    assert sorted(fakes.finished) == sorted(names)
    assert fakes.most_at_once == 3


def test_cells_that_are_finished_are_not_started_again(tmp_path: Path) -> None:
    first, second, *rest = cells()
    write_run(tmp_path, first, [0.5] * 4)
    fakes = Fakes(tmp_path)
    fakes.run([first, second])
    assert [name for name, _, _ in fakes.started] == [second.experiment]
    assert "1 of 2 cells are finished already" in fakes.said
    assert len(rest) == 6


def test_a_killed_cell_is_reported_and_goes_on_after_its_round_the_next_time(
    tmp_path: Path,
) -> None:
    chosen = cells()[:2]
    failed = Fakes(tmp_path, dies_after=3).run(chosen)
    assert failed == chosen
    again = Fakes(tmp_path)
    assert again.run(chosen) == []
    assert again.started == [(cell.experiment, True, 3) for cell in chosen]
    assert [read_record(cell, tmp_path).rounds for cell in chosen] == [4, 4]


def test_one_cell_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    chosen = cells()
    fakes = Fakes(tmp_path)
    honest = fakes.start

    def start(cell: Cell, resume: bool) -> FakeRun:
        run = honest(cell, resume)
        run.dies_after = 1 if cell == chosen[0] else 99
        return run

    fakes.start = start  # type: ignore[method-assign]
    assert fakes.run(chosen) == [chosen[0]]
    assert len(fakes.finished) == 7
    assert f"{chosen[0].experiment} FAILED after round 1, exit code -9" in fakes.said


@pytest.mark.parametrize("deaf", [False, True])
def test_an_interruption_ends_the_cells_that_run(tmp_path: Path, deaf: bool) -> None:
    fakes = Fakes(tmp_path, deaf=deaf)

    def interrupt() -> None:
        fakes.on_sleep = lambda: None
        raise InterruptedRunError(signal.SIGINT)

    fakes.on_sleep = interrupt
    with pytest.raises(InterruptedRunError):
        fakes.run(cells())
    assert [run.asked for run in fakes.alive] == [True, True]
    # One that does not listen is killed after a while, not before.
    assert [run.killed for run in fakes.alive] == [deaf, deaf]
    assert (fakes.time >= PATIENCE_SECONDS) == deaf


def test_where_it_is_and_what_is_left_is_said_every_minute(tmp_path: Path) -> None:
    fakes = Fakes(tmp_path)
    waiting = FakeRun.poll

    def slow(run: FakeRun) -> int | None:
        # A round every 40 looks of a second.
        return waiting(run) if fakes.time % 40 == 0 else run.code

    fakes.start = lambda cell, resume: _with(Fakes.start(fakes, cell, resume), slow)  # type: ignore[method-assign]
    fakes.run(cells(seeds=(0,)), jobs=2)
    # After 60 s: both cells have played the rounds of 0 and 40 s; a round is said to take 10 s.
    # They have 2 rounds left each and two others 4: 12 * 10 s by two jobs.
    assert (
        "0 of 4 cells done; rounds: fedavg-a/0.1/0 2/4, moon-a/0.1/0 2/4; about 60 s left"
        in fakes.said
    )


def _with(run: FakeRun, poll: Callable[[FakeRun], int | None]) -> FakeRun:
    run.poll = lambda: poll(run)  # type: ignore[method-assign]
    return run

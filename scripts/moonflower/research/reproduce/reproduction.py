"""One ``moonflower reproduce`` from the first line on the screen to the last."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from client_app.computation import check_computation
from common.config import SettingsError
from common.files import write_bytes
from scripts.moonflower.folders import writable
from scripts.moonflower.interruption import (
    InterruptedRunError,
    raising_on_signals,
    signals_held_back,
)
from scripts.moonflower.processes import adopt_orphans, end_descendants
from scripts.moonflower.research.reproduce.cell_process import Places, start_cell
from scripts.moonflower.research.reproduce.cells import Cell, Request, cells_of, select
from scripts.moonflower.research.reproduce.curves import draw
from scripts.moonflower.research.reproduce.markdown import render
from scripts.moonflower.research.reproduce.record import (
    Record,
    read_record,
    refuse_other_settings,
    refuse_shorter,
    seeds_on_disk,
)
from scripts.moonflower.research.reproduce.runner import Runner
from scripts.moonflower.simulation import check_gpus, default_actors, trained_on

FAILED = 1
TAIL = 5
"""Lines of a failed cell that are shown."""


@dataclass(frozen=True)
class Session:
    """What was asked for.

    Attributes
    ----------
    request : Request
    cells : Sequence[Cell]
        All of the table.
    chosen : Sequence[Cell]
        Those that are run.
    places : Places
    jobs : int or None
        Cells at a time; None: as many as cores, one with GPUs.
    gpus_per_client : float
    """

    request: Request
    cells: Sequence[Cell]
    chosen: Sequence[Cell]
    places: Places
    jobs: int | None
    gpus_per_client: float

    @classmethod
    def of(
        cls,
        request: Request,
        only: Sequence[str],
        places: Places,
        jobs: int | None,
        gpus_per_client: float,
    ) -> Session:
        """Return the session of a request, with the cells that ``only`` speaks of.

        The table holds every seed that was ever run here.

        Raises
        ------
        SettingsError
            No such cells, or some were run with other settings than the table's.
        """
        chosen = select(cells_of(request), only)
        seeds = sorted({*request.seeds, *seeds_on_disk(request, places.runs)})
        request = replace(request, seeds=seeds)
        cells = cells_of(request)
        for cell in cells:
            refuse_other_settings(cell, places.runs)
        return cls(request, cells, chosen, places, jobs, gpus_per_client)

    def check(self) -> None:
        """Look at all that a run needs.

        Raises
        ------
        SettingsError
            Rounds below those of an unfinished run, a GPU or data that are not there, a precision
            that needs a GPU, or a folder that can't be written.
        """
        for cell in self.chosen:
            refuse_shorter(cell, self.places.runs)
        check_gpus(self.gpus_per_client)
        for cell in self.chosen:
            check_computation(cell.plan.settings.train, trained_on(self.gpus_per_client))
        writable(self.places.output)
        _check_data(self.chosen, self.places)

    def run(self, say: Callable[[str], None]) -> int:
        """Run what is not finished, write the table after every cell, return the exit code.

        Raises
        ------
        SettingsError
            Another ``moonflower reproduce`` is writing there.
        """
        from filelock import FileLock, Timeout

        # The kernel ends the lock with this process, however that ends.
        lock = FileLock(self.places.output / ".reproduce.lock", timeout=0)
        try:
            with lock:
                return self._run(say)
        except Timeout:
            raise SettingsError(
                f"another moonflower reproduce is writing to {self.places.output}: let it end, or "
                "choose another folder with --output"
            ) from None

    def _run(self, say: Callable[[str], None]) -> int:
        jobs = self.jobs or self._default_jobs()
        start = partial(
            start_cell, places=self.places, jobs=jobs, gpus_per_client=self.gpus_per_client
        )
        say(f"{len(self.chosen)} cells, {jobs} at a time; results go to {self.places.output}")
        adopt_orphans()
        try:
            with raising_on_signals():
                try:
                    runner = Runner(self.places.runs, jobs, start, say, lambda _: self._write(say))
                    failed = runner.run(self.chosen)
                finally:
                    with signals_held_back():
                        end_descendants()
        except InterruptedRunError as error:
            say(f"{error}; the same command goes on where this one was")
            return error.exit_code
        written = self._write(say)
        for path in written:
            say(str(path))
        for cell in failed:
            _explain(self.places.printed(cell), cell, say)
        return FAILED if failed or not written else 0

    def write(self) -> list[Path]:
        """Write Markdown and PNG from what is on disk; return their paths."""
        records = [read_record(cell, self.places.runs) for cell in self.cells]
        base = self.places.output / self.request.file_name
        paths = [base.with_name(f"{base.name}{ending}") for ending in (".md", ".png")]
        text = render(self.request, records, _command(), _machine(self.gpus_per_client))
        write_bytes(paths[0], text.encode())
        write_bytes(paths[1], draw(self.request, records))
        return paths

    def _write(self, say: Callable[[str], None]) -> list[Path]:
        """Write the table; cells that run are worth more than it, and it can be written later."""
        try:
            return self.write()
        except OSError as error:
            say(f"the table can't be written: {error}. The same command writes it again")
            return []

    def _default_jobs(self) -> int:
        if self.gpus_per_client:
            return 1  # each cell's Ray takes all GPUs for its own
        threads = max(cell.plan.settings.train.cpu_threads for cell in self.chosen)
        unfinished = [each for each in self.chosen if not self._record(each).finished]
        return default_actors(max(1, len(unfinished)), threads)

    def _record(self, cell: Cell) -> Record:
        return read_record(cell, self.places.runs)


def _check_data(cells: Sequence[Cell], places: Places) -> None:
    """Load the test set of every data set that the cells need, which also prepares it for them.

    Raises
    ------
    SettingsError
        One is missing or can't be read.
    """
    import torch

    from common.data import DataError, load_server_test_set
    from common.node import Folders

    folders = Folders.find({"state-dir": str(places.state), "data-dir": str(places.data or "")})
    settings = {cell.plan.settings.data.source: cell.plan.settings for cell in cells}
    try:
        for each in settings.values():
            load_server_test_set(each, folders, torch.device("cpu"))
    except DataError as error:
        raise SettingsError(
            f"{error}\n(Here: --data-dir FOLDER, or --download to fetch it)"
        ) from None


def _explain(printed: Path, cell: Cell, say: Callable[[str], None]) -> None:
    text = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
    say(f"{cell.experiment} failed. All that it printed is in {printed}; the end of it:")
    for line in text.splitlines()[-TAIL:]:
        say(f"  {line}")


def _command() -> str:
    return shlex.join(["moonflower", *sys.argv[1:]])


def _machine(gpus_per_client: float) -> list[str]:
    import flwr
    import torch

    device = f"{os.cpu_count()} CPU cores ({platform.machine()})"
    if gpus_per_client:
        device = f"{torch.cuda.get_device_name()}, {gpus_per_client:g} for each client; {device}"
    return [
        f"Machine: {device}",
        f"Python {platform.python_version()}, torch {torch.__version__}, flwr {flwr.__version__}",
    ]

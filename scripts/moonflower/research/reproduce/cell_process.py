"""Start a cell: ``moonflower simulate`` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tomli_w

from common.files import write_bytes
from scripts.moonflower.processes import end_with_parent
from scripts.moonflower.repository import ROOT
from scripts.moonflower.research.reproduce.cells import Cell
from scripts.moonflower.simulation import default_actors


@dataclass(frozen=True)
class Places:
    """Folders below ``--output``, and the data's.

    Attributes
    ----------
    output : Path
    data : Path or None
        None: where the app looks by itself.
    """

    output: Path
    data: Path | None

    @property
    def runs(self) -> Path:
        """Experiments, as ``moonflower simulate`` writes them."""
        return self.output / "runs"

    @property
    def state(self) -> Path:
        """What clients keep between rounds, and prepared data; all cells share the latter."""
        return self.output / "state"

    def settings(self, cell: Cell) -> Path:
        """The settings of a cell, for ``--preset``."""
        return self.output / "cells" / f"{cell.experiment}.toml"

    def printed(self, cell: Cell) -> Path:
        """What a cell's command has printed."""
        return self.output / "cells" / f"{cell.experiment}.log"


def actors_of(cell: Cell, jobs: int) -> int:
    """Return how many clients of a cell train at once, so that ``jobs`` cells fill the cores."""
    threads = cell.plan.settings.train.cpu_threads
    cores = default_actors(sys.maxsize, threads)
    return max(1, min(cell.plan.clients, cores // jobs))


def start_cell(
    cell: Cell, resume: bool, *, places: Places, jobs: int, gpus_per_client: float
) -> subprocess.Popen[bytes]:
    """Start a cell, or go on with it after its newest checkpoint.

    The app runs as ``moonflower simulate`` runs it, with Flower's SuperLink and Ray: its own
    checkpoints make the cell resumable, and what is measured is what a user gets. One client at a
    time in each of several cells keeps the cores busier than several clients of one cell, which
    wait for each other and for the server at the end of every round.
    """
    write_bytes(places.settings(cell), tomli_w.dumps(cell.plan.overrides).encode())
    command = [
        *(sys.executable, "-c", "from scripts.moonflower import main; main()", "simulate"),
        *("--preset", str(places.settings(cell)), "--clients", str(cell.plan.clients)),
        *("--output-dir", str(places.runs), "--state-dir", str(places.state)),
        *("--actors", str(actors_of(cell, jobs)), "--gpus-per-client", str(gpus_per_client)),
    ]
    if places.data is not None:
        command += ["--data-dir", str(places.data)]
    if resume:
        command += ["-c", "resume=true"]
    with places.printed(cell).open("ab") as sink:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the parent only, which ends the cells
            # If the parent is killed outright, the simulation ends itself and all it has started.
            preexec_fn=partial(end_with_parent, gently=True),  # noqa: PLW1509 (one thread)
        )

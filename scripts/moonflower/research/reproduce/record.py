"""What a cell has left on disk so far."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.config import SettingsError
from scripts.moonflower.research.reproduce.cells import Cell, Request
from server_app.errors import ResumeError
from server_app.experiment.layout import METRICS_FILE, SETTINGS_FILE
from server_app.experiment.resume import check_settings
from server_app.experiment.settings_file import read_settings

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """A cell and the lines of its ``metrics.jsonl``, at most as many as it is to have rounds.

    Attributes
    ----------
    cell : Cell
    exists : bool
        Whether it has a folder, so that it is to be resumed.
    lines : Sequence[Line]
        Of rounds 1, 2, 3 and so on.
    """

    cell: Cell
    exists: bool
    lines: Sequence[Line]

    @property
    def rounds(self) -> int:
        """Rounds that were played."""
        return len(self.lines)

    @property
    def finished(self) -> bool:
        """Whether all rounds that are wanted were played."""
        return self.rounds >= self.cell.rounds

    @property
    def seconds(self) -> float:
        """Seconds that the rounds took."""
        return sum(float(line["seconds"]["total"]) for line in self.lines)


def read_record(cell: Cell, runs: Path) -> Record:
    """Read what a cell has left in ``runs``, also while it runs."""
    folder = runs / cell.experiment
    return Record(cell, folder.is_dir(), _lines(folder / METRICS_FILE)[: cell.rounds])


def _lines(path: Path) -> list[Line]:
    """Return the whole lines up to the first one that is not of the next round.

    Such a line is being written, or a kill cut it short, or the file is damaged: the app mends it
    from its checkpoint when the run goes on.
    """
    try:
        blob = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SettingsError(
            f"{path} can't be read: {error}. Move it away, or choose another folder with --output"
        ) from error
    lines: list[Line] = []
    with suppress(ValueError):  # of UTF-8 and of JSON
        for line in blob.split(b"\n"):
            read = json.loads(line)
            if not isinstance(read, dict) or read.get("round") != len(lines) + 1:
                break
            lines.append(read)
    return lines


def seeds_on_disk(request: Request, runs: Path) -> set[int]:
    """Return the seeds of a table that something in ``runs`` was begun with."""
    cells = {
        f"{row.name}.{column.name}"
        for row in request.table.rows
        for column in request.table.columns
    }
    named = re.compile(rf"{re.escape(request.file_name)}\.(.+)\.seed-(\d{{1,10}})")
    try:
        found = [named.fullmatch(path.name) for path in runs.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise SettingsError(f"{runs} can't be read: {error}. Choose another --output") from error
    return {int(each[2]) for each in found if each and each[1] in cells}


def refuse_shorter(cell: Cell, runs: Path) -> None:
    """Make sure that a cell that is to go on was not begun with more rounds than are wanted.

    Raises
    ------
    SettingsError
        It was: the app makes a run longer, never shorter.
    """
    folder = runs / cell.experiment
    if not (folder / SETTINGS_FILE).exists() or read_record(cell, runs).finished:
        return
    begun_with = read_settings(folder)["settings"]["num-rounds"]
    if begun_with > cell.rounds:
        raise SettingsError(
            f"{cell.experiment} was begun with {begun_with} rounds and can't be made shorter than "
            f"that: go on with --rounds {begun_with} (or more), or choose another folder with "
            "--output"
        )


def refuse_other_settings(cell: Cell, runs: Path) -> None:
    """Make sure that what is in a cell's folder was run with the cell's settings.

    ``num-rounds`` may differ either way: rounds do not depend on how many follow.

    Raises
    ------
    SettingsError
        Names what differs.
    """
    folder = runs / cell.experiment
    if not (folder / SETTINGS_FILE).exists():
        return  # killed at once, or another folder; the app decides when it is resumed
    try:
        saved = read_settings(folder)["settings"]
        longer = max(cell.rounds, int(saved.get("num-rounds", 0)))
        check_settings(saved, cell.plan.settings.model_copy(update={"num_rounds": longer}))
        _check_clients(saved, cell)
    except ResumeError as error:
        raise SettingsError(
            f"{error}\nIt lies in {folder}: move it away, or choose another folder with --output"
        ) from None


def _check_clients(saved: Mapping[str, Any], cell: Cell) -> None:
    # The app lets a deployment change how many clients it waits for. Here it is how many there are.
    clients = saved.get("server", {}).get("min-clients")
    if clients != cell.plan.settings.server.min_clients:
        raise ResumeError(
            f"{cell.experiment} was started with {clients} clients, and the table has "
            f"{cell.plan.clients}"
        )

"""The cells of a table: one checked simulation for each row, column and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from common.config import SettingsError, flat
from scripts.moonflower.research.reproduce.table_file import (
    LARGEST_SEED,
    PAPER_SCALE,
    Column,
    Row,
    Score,
    Table,
)
from scripts.moonflower.run_config import Plan, make_plan, read_preset

NOT_OF_A_TABLE = ("experiment", "seed", "resume", "data.download")
"""Settings that the command gives."""


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes
    ----------
    name : str
        Of the table; files and experiments are called after it.
    table : Table
    scale : str
    seeds : Sequence[int]
    rounds : int or None
        In place of what the table says.
    download : bool
        ``data.download``.
    """

    name: str
    table: Table
    scale: str
    seeds: Sequence[int]
    rounds: int | None = None
    download: bool = False

    @property
    def file_name(self) -> str:
        """How files of this table at this scale begin."""
        return self.name if self.scale == PAPER_SCALE else f"{self.name}-{self.scale}"


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes
    ----------
    row, column, score
        From the table.
    seed : int
    plan : Plan
        Its settings; ``plan.settings.experiment`` names its folder.
    """

    row: Row
    column: Column
    score: Score
    seed: int
    plan: Plan

    @property
    def experiment(self) -> str:
        """The name of its folder."""
        return self.plan.settings.experiment

    @property
    def rounds(self) -> int:
        """Rounds that it is to have."""
        return self.plan.settings.num_rounds


def cells_of(request: Request) -> list[Cell]:
    """Return all cells of a table, those of the first seed first.

    So a table that was broken off has every row with the seeds that were done.

    Raises
    ------
    SettingsError
        The scale is unknown, the settings of a cell can't be used, or two cells have one name.
    """
    table, cells = request.table, dict[str, Cell]()
    at_scale = flat(table.settings_of(request.scale))
    for seed in request.seeds:
        for column in table.columns:
            for row in table.rows:
                where = f"row {row.name!r}, column {column.name!r}"
                try:
                    cell = _cell(request, row, column, seed, at_scale)
                except SettingsError as error:
                    raise SettingsError(f"{where} of table {request.name}: {error}") from None
                if cell.experiment in cells:
                    raise SettingsError(
                        f"{where} of table {request.name}: another cell is called "
                        f"{cell.experiment} too. Rename the row or the column"
                    )
                cells[cell.experiment] = cell
    return list(cells.values())


def _cell(
    request: Request, row: Row, column: Column, seed: int, at_scale: Mapping[str, Any]
) -> Cell:
    table = request.table
    described = {
        **flat(table.settings),
        **at_scale,
        **flat(row.settings),
        **flat(column.settings),
        **flat(row.scales.get(request.scale, {})),
    }
    _check(described)
    chosen = {
        **read_preset(row.preset),
        **described,
        "experiment": f"{request.file_name}.{row.name}.{column.name}.seed-{seed}",
        "seed": seed,
        "data.download": request.download,
    }
    if request.rounds is not None:
        chosen["num-rounds"] = request.rounds
    cell = Cell(row, column, table.scores[row.score], seed, make_plan(None, (), chosen, None))
    evaluated = cell.plan.settings.data.client_test
    if cell.score.protocol != evaluated:
        raise SettingsError(
            f"its score {row.score!r} is of protocol {cell.score.protocol!r}, but data.client-test "
            f"is {evaluated!r}"
        )
    return cell


def _check(described: Mapping[str, Any]) -> None:
    given = [key for key in NOT_OF_A_TABLE if key in described]
    if given:
        raise SettingsError(f"{', '.join(given)} can't be set in a table: the command gives it")
    if described.get("server.patience"):
        raise SettingsError(
            "server.patience can't be set in a table: a run that may stop early has no number of "
            "its last round"
        )


def parse_seeds(text: str | None, table: Table) -> list[int]:
    """Return the seeds in ``text``, as ``0,1,2``; None: the table's.

    Raises
    ------
    SettingsError
        They are no whole numbers from 0 to 2**31 - 1, or one is there twice.
    """
    if text is None:
        return list(table.seeds)
    parts = [part.strip() for part in text.split(",")]
    seeds = [int(part) for part in parts if part.isascii() and part.isdigit()]
    if len(seeds) < len(parts) or max(seeds) > LARGEST_SEED or len(set(seeds)) < len(seeds):
        raise SettingsError(
            f"--seeds {text!r}: whole numbers from 0 to {LARGEST_SEED} separated by commas are "
            "needed, each once, as 0,1,2"
        )
    return seeds


def select(cells: Sequence[Cell], only: Iterable[str]) -> list[Cell]:
    """Return the cells that one of ``only`` speaks of; all without any.

    Parameters
    ----------
    cells : Sequence[Cell]
    only : Iterable[str]
        ``ROW`` or ``ROW/COLUMN``: a row's name or a pattern such as ``fedgen-*``, or, where no
        row is called so, an algorithm; and a column's name.

    Raises
    ------
    SettingsError
        One of them speaks of no cell.
    """
    wanted = list(only)
    chosen = [_chosen(cells, text) for text in wanted]
    for text, found in zip(wanted, chosen, strict=True):
        if not found:
            rows = ", ".join(dict.fromkeys(cell.row.name for cell in cells))
            columns = ", ".join(dict.fromkeys(cell.column.name for cell in cells))
            raise SettingsError(
                f"--only {text!r} is no cell of this table: it takes ROW or ROW/COLUMN. Rows are "
                f"{rows} (or an algorithm), columns are {columns}"
            )
    names = {cell.experiment for found in chosen for cell in found}
    return [cell for cell in cells if not wanted or cell.experiment in names]


def _chosen(cells: Sequence[Cell], text: str) -> list[Cell]:
    row, _, column = text.partition("/")
    named = [cell for cell in cells if fnmatchcase(cell.row.name, row)]
    # SOLO is FedAvg that shares nothing: --only fedavg means the row of that name.
    rows = named or [cell for cell in cells if cell.plan.settings.algorithm == row]
    return [cell for cell in rows if column in ("", cell.column.name)]

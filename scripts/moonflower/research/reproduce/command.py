"""``moonflower reproduce``: what a person types, checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scripts.moonflower.repository import ROOT

if TYPE_CHECKING:
    from scripts.moonflower.research.reproduce.cell_process import Places
    from scripts.moonflower.research.reproduce.cells import Cell, Request

BAD_INPUT = 2


def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(help="A file in scripts/tables, without .toml; or a path to one."),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="paper, or a smaller one that the table has, as small.")
    ] = "paper",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW/COLUMN",
            help="Run these cells only, as fedgen-official/0.1, fedavg or *-paper. "
            "May be repeated.",
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="As 0,1,2. Default: the table's.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of every cell. Default: the table's.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at a time. Default: as many as cores.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Default: output/reproduce.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets are. Default: ~/.moonflower/data.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch a data set that is missing.")
    ] = False,
    gpus_per_client: Annotated[
        float, typer.Option(min=0.0, help="Part of a GPU for each, as 0.1. 0: on the CPU.")
    ] = 0.0,
    show: Annotated[
        bool, typer.Option("--list", help="Run nothing: list the tables, or the cells of one.")
    ] = False,
) -> None:
    """Run a paper's table and write it next to the paper's numbers.

    Cells that are finished are not run again, and one that was interrupted goes on after its last
    round: the same command goes on with a table.
    """
    from common.config import SettingsError
    from scripts.moonflower.research.reproduce.table_file import read_table, table_names

    if table is None and show:
        for name in table_names():
            typer.echo(f"{name}: {read_table(name).title}")
        return
    from scripts.moonflower.research.reproduce.reproduction import Session

    try:
        if table is None:
            raise SettingsError(f"which table? There are {', '.join(table_names())}")
        request = _request(table, scale, seeds, rounds, download)
        places = _places(output, data_dir)
        session = Session.of(request, only or [], places, jobs, gpus_per_client)
        if show:
            _list(session.chosen, session.places)
            return
        session.check()
        code = session.run(lambda line: print(line, flush=True))
    except SettingsError as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    raise typer.Exit(code)


def _request(
    table: str, scale: str, seeds: str | None, rounds: int | None, download: bool
) -> Request:
    from scripts.moonflower.research.reproduce.cells import Request, parse_seeds
    from scripts.moonflower.research.reproduce.table_file import read_table

    described = read_table(table)
    name = Path(table).stem if table.endswith(".toml") else table
    return Request(name, described, scale, parse_seeds(seeds, described), rounds, download)


def _places(output: Path | None, data_dir: Path | None) -> Places:
    from common.node import expanded
    from scripts.moonflower.research.reproduce.cell_process import Places

    folder = expanded(str(output or ROOT / "output" / "reproduce"))
    return Places(folder, None if data_dir is None else expanded(str(data_dir)))


def _list(cells: Sequence[Cell], places: Places) -> None:
    from scripts.moonflower.research.reproduce.record import read_record

    for cell in cells:
        record = read_record(cell, places.runs)
        state = "finished" if record.finished else f"{record.rounds} of {cell.rounds} rounds"
        name = f"{cell.row.name}/{cell.column.name}"
        typer.echo(f"{name:28} seed {cell.seed}  {cell.plan.clients} clients  {state}")

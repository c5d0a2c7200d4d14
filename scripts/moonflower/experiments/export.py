"""``moonflower export``: the numbers of an experiment for other programs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from common.config import SettingsError
from common.files import write_bytes
from scripts.moonflower.experiments.experiment import NotAnExperimentError
from scripts.moonflower.experiments.finding import find_experiment, output_folder
from scripts.moonflower.experiments.listing import OutputDir
from server_app.experiment.layout import FINAL, METRICS_FILE
from server_app.tracking.destination import Source, check_installed, make_destination
from server_app.tracking.growing_file import MetricsFile
from server_app.tracking.numbers import Line, numbers_of

BAD_INPUT, FAILED = 2, 1
ROUND = "round"


class Format(StrEnum):
    """What an experiment can be written as."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    experiment: Annotated[
        str, typer.Argument(help="Its name in the folder of results, or its folder.")
    ],
    to: Annotated[Format, typer.Option("--to", help="The format, or the tracker.")],
    out: Annotated[
        str | None,
        typer.Option(
            help="A file (csv, parquet; - is standard output), a folder, or the URI of an MLflow "
            "server. Default: in the experiment's folder; for MLflow what MLFLOW_TRACKING_URI says."
        ),
    ] = None,
    output_dir: OutputDir = None,
) -> None:
    """Write the numbers of all rounds for TensorBoard, MLflow, W&B, spreadsheets or pandas.

    The same numbers under the same names as the setting tracking writes while a run goes on, also
    of one that goes on now. Exporting again replaces what was exported before.
    """
    try:
        folder = find_experiment(experiment, output_folder(output_dir))
        lines = MetricsFile(folder / METRICS_FILE)
        if to in _FILES:
            where = _write_file(folder, to, out, list(lines.new()))
        else:
            where = _write_tracker(folder, to, out or "", lines)
    except (SettingsError, NotAnExperimentError) as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except OSError as error:
        typer.echo(f"moonflower: {experiment} can't be exported: {error}", err=True)
        raise typer.Exit(FAILED) from None
    typer.echo(f"wrote {lines.round} rounds to {where}", err=True)


def columns_of(lines: Iterable[Line]) -> Mapping[str, Sequence[float | None]]:
    """Return a column for every number, a row for every round; None where a round lacks it.

    Columns stand in the order in which they come up, after ``round``.
    """
    rows = [{number.name: number.value for number in numbers_of(line)} for line in lines]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_csv(lines: Sequence[Line]) -> bytes:
    """Return a CSV file (RFC 4180): a header, then a line for every round."""
    import csv

    columns = columns_of(lines)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([ROUND, *columns])
    for index, line in enumerate(lines):
        writer.writerow([line[ROUND], *(values[index] for values in columns.values())])
    return text.getvalue().encode()


def as_parquet(lines: Sequence[Line]) -> bytes:
    """Return a Parquet file: ``round`` as int64, numbers as float64, null where there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {ROUND: pa.array([line[ROUND] for line in lines], pa.int64())}
    arrays |= {name: pa.array(values, pa.float64()) for name, values in columns_of(lines).items()}
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink)
    return sink.getvalue()


_FILES: dict[Format, Callable[[Sequence[Line]], bytes]] = {
    Format.CSV: as_csv,
    Format.PARQUET: as_parquet,
}


def _write_file(folder: Path, to: Format, out: str | None, lines: Sequence[Line]) -> str:
    blob = _FILES[to](lines)
    if out == "-":
        sys.stdout.buffer.write(blob)
        return "standard output"
    path = Path(out) if out else folder / f"metrics.{to}"
    write_bytes(path.absolute(), blob)
    return str(path)


def _write_tracker(folder: Path, to: Format, out: str, lines: MetricsFile) -> str:
    """Write a tracker, unless a run is doing so; return where."""
    from filelock import FileLock, Timeout

    from server_app.tracking.worker import lock_path

    check_installed([to])
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        with FileLock(lock_path(folder, to), timeout=0):
            return _open_and_close(folder, to, out, lines)
    except Timeout:
        raise SettingsError(
            f"{folder.name} is being written to {to} by the run itself: what it lacks when the run "
            "has ended can be exported then"
        ) from None


def _open_and_close(folder: Path, to: Format, out: str, lines: MetricsFile) -> str:
    destination = make_destination(to, Source(folder, out))
    try:
        destination.open(lines.new())
        destination.close(finished=(folder / FINAL).is_dir())
    except OSError:
        raise
    except Exception as error:  # of the tracker's own kinds
        raise OSError(f"{to} says {type(error).__name__}: {error}") from error
    return destination.where

"""``moonflower report``, ``dashboard`` and ``watch``: an experiment to be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Experiments = Annotated[
    list[str],
    typer.Argument(metavar="EXPERIMENT...", help="Names in the output folder, or paths."),
]
OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        help="Where experiments are. Default: MOONFLOWER_OUTPUT_DIR, else output in the "
        "repository.",
    ),
]

BAD_USAGE = 2


def report(
    experiments: Experiments,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write. Default: report.html in the experiment's folder; of several "
            "experiments, report.html in the output folder."
        ),
    ] = None,
    output_dir: OutputDir = None,
) -> None:
    """Write a page about an experiment, or about several side by side: one file, no network."""
    from common.files import write_bytes
    from scripts.moonflower.experiments.experiment import NotAnExperimentError, read_experiment
    from scripts.moonflower.experiments.finding import find_experiment, output_folder
    from scripts.moonflower.pages.page import REPORT_FILE
    from scripts.moonflower.pages.page import report as page_of

    output = output_folder(output_dir)
    try:
        folders = [find_experiment(name, output) for name in dict.fromkeys(experiments)]
        page = page_of([read_experiment(folder) for folder in folders])
        path = out or (folders[0] if len(folders) == 1 else output) / REPORT_FILE
        write_bytes(path.absolute(), page.encode("utf-8", "replace"))
    except (NotAnExperimentError, OSError) as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_USAGE) from None
    print_link(path.absolute())


def write_after_run(folder: Path) -> None:
    """Write the report of a run that is over and print where it is.

    Whatever goes wrong here is a warning: the run is not less worth for it.
    """
    from scripts.moonflower.experiments.experiment import is_experiment
    from scripts.moonflower.pages.page import write_report

    if not is_experiment(folder):
        return
    try:
        path = write_report(folder)
    except Exception as error:
        typer.echo(
            f"moonflower: warning: no report was written ({error}). The results are whole; "
            f"`moonflower report {folder}` tries again",
            err=True,
        )
        return
    print_link(path)


def print_link(path: Path) -> None:
    """Print a path; where a terminal shows it, it can be clicked."""
    import sys

    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, soft_wrap=True)
    console.print(Text(str(path), style=f"link {path.as_uri()}"))

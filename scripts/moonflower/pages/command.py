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


def dashboard(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8765,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. Any but the loopback's needs a token."),
    ] = "127.0.0.1",
    token: Annotated[
        str,
        typer.Option(
            envvar="MOONFLOWER_DASHBOARD_TOKEN",
            help="What a visitor has to know. Other users of this machine see options in `ps`: "
            "better set it in the environment.",
        ),
    ] = "",
    output_dir: OutputDir = None,
) -> None:
    """Show a live page over the results folder: experiments, pictures that grow, alarms.

    It reads what is on disk and changes nothing.
    """
    import uvicorn

    from common.config import SettingsError
    from scripts.moonflower.experiments.finding import output_folder
    from scripts.moonflower.pages.dashboard import application, check_address
    from scripts.moonflower.pages.metrics_route import metrics_route

    output = output_folder(output_dir)
    try:
        check_address(host, token)
    except SettingsError as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_USAGE) from None
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{shown}:{port}/ shows the experiments in {output}. Ctrl-C ends it.")
    uvicorn.run(
        application(output, token, [metrics_route(output)]),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        ws="none",
    )


def watch(
    experiment: Annotated[str, typer.Argument(help="Its name in the output folder, or a path.")],
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    output_dir: OutputDir = None,
) -> None:
    """Show an experiment in the terminal while it runs, whoever started it.

    One that has not begun is waited for. The exit code is 0 when it has finished, or is seen
    running with --once, and 1 when it stopped or broke off.
    """
    from rich.console import Console

    from scripts.moonflower.experiments.experiment import NotAnExperimentError, State
    from scripts.moonflower.experiments.finding import find_experiment, output_folder
    from scripts.moonflower.pages.watch import watch as show

    output = output_folder(output_dir)
    try:
        folder = find_experiment(experiment, output)
    except NotAnExperimentError as error:
        if once or "/" in experiment:
            typer.echo(f"moonflower: {error}", err=True)
            raise typer.Exit(BAD_USAGE) from None
        folder = output / experiment
    try:
        state = show(folder, Console(), once=once)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except NotAnExperimentError as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_USAGE) from None
    raise typer.Exit(0 if state in (State.RUNNING, State.FINISHED) else 1)


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

"""One ``moonflower simulate`` from the first line on the screen to the last."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from rich.console import Console

from scripts.moonflower.interruption import InterruptedRunError
from scripts.moonflower.progress import Progress
from scripts.moonflower.report import LOG_FILE, sites_table, summarise, table, written
from scripts.moonflower.run_config import Plan
from scripts.moonflower.simulated_superlink import SimulationError
from scripts.moonflower.simulation import Machine, simulate
from server_app.experiment.layout import CHECKPOINTS, METRICS_FILE

FAILED = 1


def run(plan: Plan, machine: Machine, *, verbose: bool) -> int:
    """Simulate, show progress and the result, and return the exit code."""
    output = machine.folders["MOONFLOWER_OUTPUT_DIR"]
    experiment = output / plan.settings.experiment
    log = output / f"{plan.settings.experiment}.log"
    progress = Progress(lambda line: print(line, flush=True), verbose=verbose)
    print(
        f"{plan.settings.algorithm} on {plan.settings.data.source}: {plan.clients} clients, "
        f"{plan.settings.num_rounds} rounds, {machine.actors} at a time. Starting Flower and Ray "
        "takes up to a minute.",
        flush=True,
    )
    try:
        simulate(plan, machine, log, progress)
    except InterruptedRunError as error:
        _explain(str(error), [], log, experiment)
        return error.exit_code
    except SimulationError as error:
        problem = str(error).removeprefix("Simulation failed with exception: ")
        if progress.said_why:
            problem = "the run failed, see above"
        _explain(problem, [] if progress.said_why else progress.errors, log, experiment)
        return FAILED
    if experiment.is_dir():
        _move_to_end(log, experiment / LOG_FILE)
    _show_result(plan.settings.algorithm, experiment)
    return 0


def _move_to_end(log: Path, target: Path) -> None:
    """Move a log to ``target``; an earlier one, of a run that was resumed, stays above it."""
    if target.exists():
        with target.open("ab") as file:
            file.write(log.read_bytes())
        log.unlink()
    else:
        log.rename(target)


def _explain(problem: str, errors: list[str], log: Path, experiment: Path) -> None:
    for line in errors:
        typer.echo(f"  {line}", err=True)
    typer.echo(f"moonflower: {problem}", err=True)
    if log.is_file():
        typer.echo(f"The whole log: {log}", err=True)
    if experiment.is_dir():
        typer.echo(f"What was written until then: {experiment}", err=True)
    if any((experiment / CHECKPOINTS).glob("round-*")):
        typer.echo(
            f"Go on from its last round: the same command with --experiment {experiment.name} "
            "-c resume=true",
            err=True,
        )


def _show_result(algorithm: str, experiment: Path) -> None:
    console = Console(file=sys.stdout)
    try:
        console.print(table(algorithm, summarise(experiment / METRICS_FILE)))
        if by_site := sites_table(experiment / METRICS_FILE):
            console.print(by_site)
    except (OSError, ValueError, LookupError) as error:
        typer.echo(f"moonflower: the run completed, but has no readable result: {error}", err=True)
    for path in written(experiment):
        print(path)

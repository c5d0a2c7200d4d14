"""``moonflower list``: the experiments of a folder, for people and for scripts."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.errors import MoonflowerError
from common.text import safe_text

if TYPE_CHECKING:
    from rich.table import Table

    from scripts.moonflower.experiments.experiment import Experiment

UNITS = ("B", "kB", "MB", "GB", "TB")

OutputDir = Annotated[
    Path | None,
    typer.Option(
        help="Where experiments are. Default: MOONFLOWER_OUTPUT_DIR, else output in the repository."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def list_experiments(output_dir: OutputDir = None, json: Json = False) -> None:
    """Show the experiments with state, rounds, best score, age and size, newest first."""
    import sys

    from rich.console import Console

    from scripts.moonflower.experiments.finding import output_folder

    output = output_folder(output_dir)
    experiments = list(_read_all(output))
    experiments.sort(key=lambda each: each.changed, reverse=True)
    if json:
        listed = {"output": str(output), "experiments": [facts_of(each) for each in experiments]}
        typer.echo(jsons.dumps(listed, indent=2, ensure_ascii=False))
        return
    if not experiments:
        typer.echo(f"no experiment in {output}", err=True)
        return
    now = datetime.now(UTC)
    Console(width=None if sys.stdout.isatty() else 160).print(as_table(experiments, now))


def _read_all(output: Path) -> Iterator[Experiment]:
    from scripts.moonflower.experiments.experiment import experiment_folders, read_experiment

    for folder in experiment_folders(output):
        try:
            yield read_experiment(folder)
        except MoonflowerError as error:
            typer.echo(f"moonflower: {error}", err=True)


def facts_of(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment's entry in the JSON form; docs/tracking.md describes it."""
    best = experiment.best
    score = {"name": experiment.headline.name, "value": best[1], "round": best[0]} if best else None
    return {
        "name": experiment.name,
        "folder": str(experiment.folder),
        "state": str(experiment.state),
        "why": experiment.why,
        "algorithm": experiment.algorithm,
        "rounds": experiment.rounds,
        "num-rounds": experiment.num_rounds,
        "best": score,
        "started": experiment.started and experiment.started.isoformat(),
        "changed": experiment.changed.isoformat(),
        "bytes": experiment.size(),
        "problems": list(experiment.problems),
    }


def run_as_json(folder: Path, exit_code: int) -> str:
    """Return what ``moonflower run --json`` prints when a run has ended.

    ``results`` are null where they are on another machine.
    """
    from scripts.moonflower.experiments.experiment import NotAnExperimentError, read_experiment

    try:
        results: dict[str, Any] | None = facts_of(read_experiment(folder))
    except NotAnExperimentError:
        results = None
    shown = {
        "experiment": folder.name,
        "completed": exit_code == 0,
        "exit-code": exit_code,
        "results": results,
    }
    return jsons.dumps(shown, indent=2, ensure_ascii=False)


def as_table(experiments: Iterable[Experiment], now: datetime) -> Table:
    """Return the table to print; what is damaged is said below its experiment's state."""
    from rich.table import Table
    from rich.text import Text

    table = Table("Experiment", "State", "Rounds", "Algorithm", "Best", "Changed", "Size")
    for each in experiments:
        facts = facts_of(each)
        best = facts["best"]
        state = Text(facts["state"])
        for problem in facts["problems"]:
            state.append(f"\n{safe_text(problem, 120)}", style="yellow")
        table.add_row(
            Text(each.name),
            state,
            f"{each.rounds}/{each.num_rounds or '?'}",
            Text(safe_text(each.algorithm or "?", 40)),
            Text(f"{best['name']} {best['value']:.3f} (round {best['round']})" if best else "-"),
            f"{age((now - each.changed).total_seconds())} ago",
            size(facts["bytes"]),
        )
    return table


def age(seconds: float) -> str:
    """Return ``"40 s"``, ``"12 min"``, ``"5 h"`` or ``"3 days"``, in the largest that fits."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def size(number: float) -> str:
    """Return ``"812 B"`` or ``"1.4 MB"``."""
    for unit in UNITS:
        if number < 1000 or unit == UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"

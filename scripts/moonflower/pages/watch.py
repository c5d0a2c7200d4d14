"""An experiment in the terminal, while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scripts.moonflower.experiments.experiment import (
    Experiment,
    State,
    is_experiment,
    read_experiment,
)
from scripts.moonflower.experiments.metrics_file import MetricsFile, number_at
from scripts.moonflower.pages.page import online_of, row_of
from scripts.moonflower.pages.participation import alarms_of, clients_of
from scripts.moonflower.pages.scales import score_text, time_text
from server_app.experiment.layout import METRICS_FILE

EVERY = 1.0
"""Seconds between two looks."""
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60
"""Characters of a sparkline."""
MOST_ROWS = 15
COLOURS = {
    State.RUNNING: "blue",
    State.FINISHED: "green",
    State.STOPPED: "yellow",
    State.CRASHED: "red",
}
RECENT = 10
"""Rounds whose mean length says how long the rest takes."""


def watch(
    folder: Path,
    console: Console,
    *,
    once: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> State:
    """Show an experiment until its run is over, and return what became of it.

    On a terminal the picture changes in its place; elsewhere every round is one line.

    Parameters
    ----------
    folder : Path
        It need not be there yet: then its beginning is waited for, unless ``once``.
    console : Console
    once : bool
        Look once.

    Raises
    ------
    NotAnExperimentError
        There is none, and ``once``; or it can't be read.
    """
    if not is_experiment(folder) and not once:
        console.print(Text(f"waiting for {folder} to begin"), soft_wrap=True)
        while not is_experiment(folder):
            sleep(EVERY)
    metrics = MetricsFile(folder / METRICS_FILE)
    experiment = read_experiment(folder, metrics)
    if once:
        console.print(picture(experiment))
        return experiment.state
    if not console.is_terminal:
        return _lines(folder, metrics, console, sleep)
    with Live(picture(experiment), console=console, auto_refresh=False) as live:
        while experiment.state is State.RUNNING:
            sleep(EVERY)
            experiment = read_experiment(folder, metrics)
            live.update(picture(experiment), refresh=True)
    return experiment.state


def _lines(
    folder: Path, metrics: MetricsFile, console: Console, sleep: Callable[[float], None]
) -> State:
    said = 0
    while True:
        experiment = read_experiment(folder, metrics)
        for line in experiment.lines:
            if line["round"] > said:
                said = line["round"]
                console.print(_round_text(experiment, line["round"]), soft_wrap=True)
        if experiment.state is not State.RUNNING:
            console.print(Text(f"{experiment.name}: {experiment.state}"), soft_wrap=True)
            return experiment.state
        sleep(EVERY)


def _round_text(experiment: Experiment, number: int) -> Text:
    (line,) = (each for each in experiment.lines if each["round"] == number)
    name = experiment.headline.name
    parts = [f"round {number}/{experiment.num_rounds}"]
    for label, score in (
        (f"global {name}", number_at(line, "global", name)),
        ("mean client", number_at(line, "clients", "mean")),
        ("worst", number_at(line, "clients", "worst", name)),
    ):
        if score is not None:
            parts.append(f"{label} {score_text(score)}")
    return Text("  ".join(parts))


def picture(experiment: Experiment) -> RenderableType:
    """Return what is shown of an experiment at one moment: alarms first."""
    parts: list[RenderableType] = [_alarms(experiment), _progress(experiment), _scores(experiment)]
    parts.append(_clients(experiment))
    title = Text.assemble(
        (experiment.name, "bold"), "  ", (experiment.state, COLOURS[experiment.state])
    )
    return Panel(Group(*parts), title=title, title_align="left")


def _alarms(experiment: Experiment) -> RenderableType:
    lines = [f"damaged: {text}" for text in experiment.problems]
    if experiment.why:
        lines.append(f"stopped: {experiment.why}")
    lines += [f"round {a.rounds}: {a.text}" for a in alarms_of(experiment.lines)[:3]]
    return Text("\n".join(lines) + "\n" if lines else "", style="yellow")


def _progress(experiment: Experiment) -> RenderableType:
    total = max(1, experiment.num_rounds)
    words = [f" round {experiment.rounds}/{experiment.num_rounds or '?'}"]
    online = online_of(experiment)
    if online is not None:
        words.append(f"{len(online)} clients online")
    if experiment.state is State.RUNNING and (left := seconds_left(experiment)) is not None:
        words.append(f"about {time_text(left)} left")
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=total, completed=min(experiment.rounds, total), width=30)
    grid.add_row(bar, Text(", ".join(words)))
    return grid


def seconds_left(experiment: Experiment) -> float | None:
    """Return how long the rounds that are left will take, as the last ones did; None: unknown."""
    recent = [number_at(line, "seconds", "total") for line in experiment.lines[-RECENT:]]
    known = [seconds for seconds in recent if seconds is not None]
    if not known:
        return None
    return sum(known) / len(known) * max(0, experiment.num_rounds - experiment.rounds)


def _scores(experiment: Experiment) -> RenderableType:
    row, grid = row_of(experiment), Table.grid(padding=(0, 2))
    name = experiment.headline.name or "score"
    for label, series, newest in (
        (f"global {name}", experiment.series("global", name), row.global_score),
        (f"mean client {name}", experiment.series("clients", "mean"), row.mean),
        ("loss in training", experiment.series("train", "loss"), None),
    ):
        numbers = [number for _, number in series if number is not None]
        if numbers:
            shown = numbers[-1] if newest is None else newest
            grid.add_row(label, Text(sparkline(numbers), style="cyan"), score_text(shown))
    return grid


def sparkline(numbers: Sequence[float], width: int = WIDTH) -> str:
    """Return numbers as a line of bars; of more than ``width``, means of neighbours."""
    step = -(-len(numbers) // width)
    groups = [numbers[n : n + step] for n in range(0, len(numbers), step)]
    means = [sum(group) / len(group) for group in groups]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)


def _clients(experiment: Experiment) -> RenderableType:
    clients = clients_of(experiment)
    online = online_of(experiment)
    name = experiment.headline.name or "score"
    table = Table(box=SIMPLE, pad_edge=False)
    width = min(24, max((len(client.name) for client in clients), default=0))
    table.add_column("client", no_wrap=True, min_width=width)
    for title in (name, "examples", "trained", "no answer", "refused in"):
        table.add_column(title, overflow="fold")
    if online is not None:
        table.add_column("online")
    for client in clients[:MOST_ROWS]:
        cells = [
            score_text(client.last[1] if client.last else None),
            "-" if client.examples is None else str(client.examples),
            str(len(client.trained)),
            str(len(client.missing)),
            client.refused_in or "-",
        ]
        if online is not None:
            cells.append("yes" if client.name in online else "no")
        table.add_row(Text(client.name), *cells)
    if len(clients) > MOST_ROWS:
        table.caption = f"and {len(clients) - MOST_ROWS} more with better scores"
    return table

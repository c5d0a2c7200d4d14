"""Whole pages: the report, one HTML file that needs no network, and what the dashboard serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import write_bytes
from scripts.moonflower.experiments.experiment import Experiment, State, read_experiment
from scripts.moonflower.experiments.metrics_file import number_at, series
from scripts.moonflower.pages import words
from scripts.moonflower.pages.line_chart import Curve, LineChart, line_chart
from scripts.moonflower.pages.participation import (
    MOST_REASONS,
    alarms_of,
    clients_of,
    refusals_of,
)
from scripts.moonflower.pages.pictures import sections_of
from scripts.moonflower.pages.scales import score_text

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT_FILE = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
MOST_CLIENTS = 400
"""Rows of the table of clients."""


@cache
def environment() -> Environment:
    """Return the templates; whatever stands in a variable is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["score"] = score_text
    return found


@dataclass(frozen=True)
class Row:
    """One experiment in a comparison: what its last evaluation said."""

    experiment: Experiment
    global_score: float | None
    mean: float | None
    std: float | None
    worst: float | None
    worst_name: str


def report(experiments: Sequence[Experiment]) -> str:
    """Return the page of one experiment, or of several side by side."""
    title = " · ".join(experiment.name for experiment in experiments)
    return render(
        "report.html",
        title=title,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        experiments=[view_of(experiment) for experiment in experiments],
        comparison=compared(experiments) if len(experiments) > 1 else None,
    )


def write_report(folder: Path) -> Path:
    """Write the report of an experiment into its folder, and return the file.

    Raises
    ------
    NotAnExperimentError
        There is no experiment.
    OSError
        It can't be written.
    """
    path = folder / REPORT_FILE
    write_bytes(path, report([read_experiment(folder)]).encode("utf-8", "replace"))
    return path


def render(template: str, **values: Any) -> str:
    """Return a page with the style sheet in it."""
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    return environment().get_template(template).render(style=style, **values)


def view_of(experiment: Experiment) -> dict[str, Any]:
    """Return all that the templates say of one experiment."""
    clients, refusals = clients_of(experiment), refusals_of(experiment.lines)
    return {
        "experiment": experiment,
        "online": online_of(experiment),
        "result": words.result_of(experiment),
        "tiles": words.tiles_of(experiment),
        "alarms": alarms_of(experiment.lines)[:MOST_REASONS],
        "sections": sections_of(experiment),
        "clients": clients[:MOST_CLIENTS],
        "more_clients": max(0, len(clients) - MOST_CLIENTS),
        "refusals": refusals[:MOST_REASONS],
        "more_refusals": max(0, len(refusals) - MOST_REASONS),
        "differences": words.differences_of(experiment),
        "facts": words.facts_of(experiment),
        "command": words.command_of(experiment),
    }


def online_of(experiment: Experiment) -> list[str] | None:
    """Return who is connected to a run that goes on; None where nothing says it."""
    clients = experiment.activity.get("clients")
    if experiment.state is not State.RUNNING or not isinstance(clients, list):
        return None
    return [str(name) for name in clients]


def compared(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Return what a comparison says: a table, curves of all, and the settings that differ."""
    charts = [
        line_chart(
            f"{_common_headline(experiments)}, global model",
            [
                Curve(each.name, series(each.lines, "global", each.headline.name))
                for each in experiments
            ],
        ),
        line_chart(
            f"{_common_headline(experiments)}, mean client",
            [Curve(each.name, series(each.lines, "clients", "mean")) for each in experiments],
        ),
        line_chart(
            f"{_common_headline(experiments)}, worst client",
            [
                Curve(each.name, series(each.lines, "clients", "worst", each.headline.name))
                for each in experiments
            ],
        ),
        line_chart(
            "loss in training",
            [Curve(each.name, series(each.lines, "train", "loss")) for each in experiments],
        ),
    ]
    drawn: list[LineChart] = [chart for chart in charts if chart is not None]
    return {
        "rows": [row_of(experiment) for experiment in experiments],
        "charts": drawn,
        "settings": words.between(experiments),
    }


def row_of(experiment: Experiment) -> Row:
    """Return what the newest evaluation of an experiment says."""
    evaluated: Any = next(
        (line for line in reversed(experiment.lines) if line.get("global") or line.get("clients")),
        {},
    )
    name = experiment.headline.name
    worst = (evaluated.get("clients") or {}).get("worst") or {}
    return Row(
        experiment,
        number_at(evaluated, "global", name),
        number_at(evaluated, "clients", "mean"),
        number_at(evaluated, "clients", "std"),
        number_at(worst, name),
        str(worst.get("name", "")),
    )


def _common_headline(experiments: Sequence[Experiment]) -> str:
    return " / ".join(dict.fromkeys(each.headline.name for each in experiments)) or "score"

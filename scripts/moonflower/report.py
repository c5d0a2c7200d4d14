"""The short table at the end of a run, from what the server wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

LOG_FILE = "run.log"


@dataclass(frozen=True)
class Summary:
    """The last evaluation of a run; ``None`` where not measured.

    Attributes
    ----------
    rounds : int
        Rounds of training that finished.
    score : str
        Name of the score that the others are; empty where nothing was measured.
    global_score : float or None
        Of the global model on the server's test set.
    mean, std, worst : float or None
        Over the clients that evaluated.
    worst_name : str
    """

    rounds: int
    score: str
    global_score: float | None
    mean: float | None
    std: float | None
    worst: float | None
    worst_name: str


def summarise(metrics: Path) -> Summary:
    """Read ``metrics.jsonl``.

    Raises
    ------
    ValueError
        If it holds no round.
    """
    rounds = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    if not rounds:
        raise ValueError(f"{metrics} holds no round")
    clients, global_model = _last(rounds, "clients"), _last(rounds, "global")
    worst = clients.get("worst") or {}
    # The headline is the first of a model's scores, and all that is said of the worst client.
    name = next((key for key in (*global_model, *worst) if key != "name"), "")
    return Summary(
        rounds=int(rounds[-1]["round"]),
        score=name,
        global_score=global_model.get(name),
        mean=clients.get("mean"),
        std=clients.get("std"),
        worst=worst.get(name),
        worst_name=str(worst.get("name", "")),
    )


def _last(rounds: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the newest non-empty ``key``: not every round evaluates."""
    return next((dict(line[key]) for line in reversed(rounds) if line.get(key)), {})


def table(algorithm: str, summary: Summary) -> Table:
    """Return the table to print."""
    from rich.table import Table

    worst = _number(summary.worst)
    columns = ("Algorithm", "Rounds", "Global model", "Mean client", "Worst client")
    rows = Table(*columns, caption=summary.score or None)
    rows.add_row(
        algorithm,
        str(summary.rounds),
        _number(summary.global_score),
        f"{_number(summary.mean)} ± {_number(summary.std)}" if summary.mean is not None else "-",
        f"{worst} ({summary.worst_name})" if summary.worst_name else worst,
    )
    return rows


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def written(experiment: Path) -> list[Path]:
    """Return the files and folders of an experiment that exist, most wanted first."""
    from server_app.experiment.layout import BEST, FINAL, METRICS_FILE, SETTINGS_FILE

    names = (METRICS_FILE, SETTINGS_FILE, BEST, FINAL, LOG_FILE)
    return [experiment / name for name in names if (experiment / name).exists()]

"""The short table at the end of a run, from what the server wrote."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

LOG_FILE = "run.log"

_UNNAMED = re.compile(r"client-[0-9]{4,}")
"""What :mod:`common.node` calls a client to whom nobody gave a name."""


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
    personal : tuple[float, float] or None
        Mean and standard deviation of the clients' own models; None where they were not scored.
    """

    rounds: int
    score: str
    global_score: float | None
    mean: float | None
    std: float | None
    worst: float | None
    worst_name: str
    personal: tuple[float, float] | None = None


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
    worst, own = clients.get("worst") or {}, _last(rounds, "personal")
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
        personal=None if own.get("mean") is None else (own["mean"], own["std"]),
    )


def _last(rounds: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the newest non-empty ``key``: not every round evaluates."""
    return next((dict(line[key]) for line in reversed(rounds) if line.get(key)), {})


def table(algorithm: str, summary: Summary) -> Table:
    """Return the table to print."""
    from rich.table import Table

    worst = _number(summary.worst)
    cells = {
        "Algorithm": algorithm,
        "Rounds": str(summary.rounds),
        "Global model": _number(summary.global_score),
        "Mean client": _mean(summary.mean, summary.std),
        "Worst client": f"{worst} ({summary.worst_name})" if summary.worst_name else worst,
    }
    if summary.personal:
        cells["Own models"] = _mean(*summary.personal)
    rows = Table(*cells, caption=summary.score or None)
    rows.add_row(*cells.values())
    return rows


MOST_SITES = 20
"""More rows than that say nothing at a glance; ``metrics.jsonl`` and the report have all."""


def sites_table(metrics: Path) -> Table | None:
    """Return the last scores site by site; None where clients have no names of their own.

    Below the scores stands why one is not defined. The last row is that of all sites' examples
    together.

    Raises
    ------
    ValueError
        ``metrics`` is damaged.
    """
    from rich.table import Table

    rounds = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    clients = _last(rounds, "clients")
    headline = next((key for key in clients.get("worst") or () if key != "name"), "")
    sites = sorted(clients.get("per-client") or ())
    if not headline or len(sites) > MOST_SITES or all(map(_UNNAMED.fullmatch, sites)):
        return None
    columns = {headline: clients, **(clients.get("scores") or {})}
    rows = Table("Site", *columns, caption=_why_undefined(columns) or None)
    for site in sites:
        rows.add_row(site, *(_number(each["per-client"].get(site)) for each in columns.values()))
    rows.add_section()
    together = (clients["weighted" if name == headline else name] for name in columns)
    rows.add_row("all together", *map(_number, together))
    return rows


def _why_undefined(columns: dict[str, dict[str, Any]]) -> str:
    return "\n".join(
        f"{score} of {site}: {why}"
        for score, each in columns.items()
        for site, why in each.get("undefined", {}).get("per-client", {}).items()
    )


def _mean(mean: float | None, std: float | None) -> str:
    return f"{_number(mean)} ± {_number(std)}" if mean is not None else "-"


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def written(experiment: Path) -> list[Path]:
    """Return the files and folders of an experiment that exist, most wanted first."""
    from server_app.experiment.layout import BEST, FINAL, METRICS_FILE, SETTINGS_FILE

    names = (METRICS_FILE, SETTINGS_FILE, BEST, FINAL, LOG_FILE)
    return [experiment / name for name in names if (experiment / name).exists()]

"""Folders of experiments, written by hand as the server writes them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from common.config import nested
from tests.settings import default_run_config


def line_of(number: int, clients: int = 3, classes: int = 3) -> dict[str, Any]:
    """Return a round's line: scores rise, client-0000 is the worst."""
    names = [f"client-{each:04d}" for each in range(clients)]
    rising = 1 - math.exp(-number / 8)
    per_client = {name: rising * (0.6 + 0.4 * (n + 1) / clients) for n, name in enumerate(names)}
    mean = sum(per_client.values()) / clients
    worst = names[0]
    return {
        "round": number,
        "train": {
            "loss": 1 / number,
            "cross-entropy": 0.75 / number,
            "moon": 0.25 / number,
            "sim-global": rising,
            "sim-previous": -0.5,
            "steps": 12.0,
            "train-seconds": 0.25,
            "num-examples": 300,
        },
        "clients": {
            "mean": mean,
            "std": 0.125,
            "worst": {"name": worst, "accuracy": per_client[worst]},
            "weighted": mean,
            "loss": 1 / number,
            "examples": 90,
            "per-class": [rising] * classes,
            "per-client": per_client,
        },
        "global": {
            "accuracy": rising,
            "loss": 1 / number,
            "examples": 60,
            "per-class": [rising] * classes,
        },
        "participants": names,
        "refused": {},
        "missing": [],
        "excluded": [],
        "dropped": 0,
        "unreadable": [],
        "evaluation": {"participants": names, "refused": {}, "missing": [], "excluded": []},
        "update-norm": 1.5,
        "update-norms": dict.fromkeys(names, 2.0),
        "clipped": [],
        "taken-back": None,
        "alarms": [],
        "bytes": {"sent": 3_000_000, "received": 1_000_000},
        "seconds": {"join": 0.25, "train": 2.0, "aggregate": 0.5, "total": 2.75},
    }


def facts_of(name: str, clients: int = 3, classes: int = 3, **overrides: Any) -> dict[str, Any]:
    """Return the content of ``settings.json``; ``overrides`` are settings, flat."""
    settings = {**default_run_config(), "experiment": name, "num-rounds": 4, **overrides}
    return {
        "experiment": name,
        "id": "0" * 32,
        "started": "2026-12-01T08:00:00+00:00",
        "settings": nested(settings),
        "versions": {"python": "3.11.2", "flwr": "1.42.0", "torch": "2.14.1"},
        "clients": [
            {
                "name": f"client-{each:04d}",
                "examples-per-label": [10 * (each + 1)] * classes,
                "device": "cpu",
                "versions": "",
            }
            for each in range(clients)
        ],
    }


def write_experiment(
    folder: Path,
    lines: list[dict[str, Any]],
    facts: dict[str, Any] | None = None,
    *,
    finished: bool = True,
) -> Path:
    """Write an experiment's folder without its models, and return it."""
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    facts = facts or facts_of(folder.name)
    (folder / "settings.json").write_text(json.dumps(facts, indent=2))
    if lines:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
    if finished:
        (folder / "final").mkdir()
        final = {"facts": {"round": lines[-1]["round"] if lines else 0}}
        (folder / "final" / "model.json").write_text(json.dumps(final))
    return folder

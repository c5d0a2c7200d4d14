"""An experiment's folder with rounds, as the server leaves it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def line_of(server_round: int, seconds: float = 2.0, **changes: Any) -> dict[str, Any]:
    """Return a round's line."""
    line = {
        "round": server_round,
        "train": {"loss": 1.0 / server_round, "num-examples": 90},
        "clients": {
            "mean": 0.75,
            "std": 0.25,
            "worst": {"name": "b", "accuracy": 0.5},
            "loss": 0.5,
            "per-client": {"a": 1.0, "b": 0.5},
        },
        "global": {"accuracy": 0.8, "loss": 0.4, "examples": 10, "per-class": [0.5, None]},
        "participants": ["a", "b"],
        "refused": {"c": "it holds NaN"},
        "missing": [],
        "excluded": [],
        "dropped": 0,
        "unreadable": [],
        "evaluation": None,
        "update-norm": 0.5,
        "update-norms": {"a": 1.5, "b": 2.5},
        "clipped": [],
        "taken-back": None,
        "alarms": [],
        "bytes": {"sent": 100, "received": 50},
        "seconds": {"train": 1.5, "total": seconds},
    }
    return line | changes


def write_rounds(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Replace ``metrics.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


def make_experiment(folder: Path, rounds: int = 3) -> Path:
    """Write an experiment of so many rounds, begun 1,000 s after the beginning of 1970."""
    write_rounds(folder, [line_of(number) for number in range(1, rounds + 1)])
    facts = {
        "id": "abc",
        "started": "1970-01-01T00:16:40+00:00",
        "settings": {"num-rounds": 5, "moon": {"mu": 2.5}, "algorithm": "moon"},
    }
    (folder / "settings.json").write_text(json.dumps(facts))
    return folder

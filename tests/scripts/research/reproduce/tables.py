"""A small table and runs that were never run, for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.moonflower.research.reproduce.cells import Cell, Request, cells_of
from scripts.moonflower.research.reproduce.table_file import Table

TABLE = Table.model_validate(
    {
        "title": "Two rows",
        "source": "A paper, Table 1",
        "seeds": [0, 1],
        "notes": ["A note."],
        "settings": {"num-rounds": 4, "train": {"local-epochs": 7}},
        "scales": {"small": {"num-rounds": 2, "train": {"local-epochs": 3}}},
        "scores": {
            "last": {
                "protocol": "global",
                "number": "global.accuracy",
                "best": 0,
                "why": "it says so",
            },
            "best": {
                "protocol": "global",
                "number": "clients.weighted",
                "best": 2,
                "why": "its code",
            },
        },
        "columns": [
            {"name": "0.1", "label": "alpha 0.1", "settings": {"data": {"alpha": 0.1}}},
            {"name": "1", "label": "alpha 1", "settings": {"data": {"alpha": 1.0}}},
        ],
        "rows": [
            {
                "name": "fedavg-a",
                "label": "FedAvg",
                "preset": "fedgen-paper",
                "settings": {"algorithm": "fedavg", "train": {"local-epochs": 5}},
                "score": "last",
                "paper": {"0.1": [90.0, 0.5], "1": [95.0]},
            },
            {
                "name": "moon-a",
                "label": "MOON",
                "preset": "fedgen-paper",
                "settings": {"algorithm": "moon"},
                "scales": {"small": {"train": {"local-epochs": 1}}},
                "score": "best",
            },
        ],
    }
)


def request(scale: str = "paper", seeds: Sequence[int] = (0, 1), **options: Any) -> Request:
    """Return a request for the table."""
    return Request("two", TABLE, scale, seeds, **options)


def cells(**options: Any) -> list[Cell]:
    """Return its cells."""
    return cells_of(request(**options))


def line(server_round: int, accuracy: float, seconds: float = 10.0) -> dict[str, Any]:
    """Return a line of metrics.jsonl: two clients, both as good as the global model."""
    return {
        "round": server_round,
        "global": {"accuracy": accuracy},
        "clients": {"weighted": accuracy, "mean": accuracy, "per-client": {"a": accuracy}},
        "seconds": {"total": seconds},
    }


def write_run(runs: Path, cell: Cell, accuracies: Sequence[float], seconds: float = 10.0) -> None:
    """Write the lines of a run, a round for each accuracy."""
    folder = runs / cell.experiment
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line(number, each, seconds) for number, each in enumerate(accuracies, start=1)]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    (folder / "metrics.jsonl").write_text(text)

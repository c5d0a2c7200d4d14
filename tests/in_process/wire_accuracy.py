"""Bytes and accuracy by ``wire.dtype``, as docs/algorithms.md shows them.

    .venv/bin/python -m tests.in_process.wire_accuracy moon-digits --seeds 10
    MOONFLOWER_DATA_DIR=FOLDER .venv/bin/python -m tests.in_process.wire_accuracy fedgen-mnist \
        --rounds 30 --seeds 3

Both apps run in this process. Seeds are the same for all dtypes, so that differences are paired.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from common.config import flat
from tests.in_process.grid import run_in_process
from tests.settings import ROOT

DTYPES = ("float32", "float16", "int8")
LAST = 5
"""Rounds at the end over which accuracy is averaged: one round alone is noise."""


def settings_of(name: str) -> tuple[dict[str, Any], int]:
    """Return the settings and the number of clients of an experiment."""
    if name == "moon-digits":
        return {}, 10  # the quickstart: nothing but defaults
    preset = (ROOT / "scripts" / "presets" / "fedgen-official.toml").read_text(encoding="utf-8")
    return flat(tomllib.loads(preset)), 20


def measure(name: str, dtype: str, seed: int, rounds: int) -> tuple[float, float, float]:
    """Return megabytes to the clients and from them in a round, and accuracy in per cent.

    Bytes are those of the last round, accuracy the mean of the last rounds': the global model's
    on the server's test set, or the clients' mean where the server can't evaluate.
    """
    settings, clients = settings_of(name)
    changes = {"num-rounds": rounds, "seed": seed, "wire.dtype": dtype, "experiment": "exp"}
    with tempfile.TemporaryDirectory() as folder:
        results = run_in_process({**settings, **changes}, clients, Path(folder))
        text = (results / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    accuracies = [
        line["global"]["accuracy"] if line["global"] else line["clients"]["mean"]
        for line in lines[-LAST:]
    ]
    sizes = lines[-1]["bytes"]
    return sizes["sent"] / 1e6, sizes["received"] / 1e6, 100 * statistics.mean(accuracies)


def main() -> None:
    """Measure all dtypes and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["moon-digits", "fedgen-mnist"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = {dtype: [] for dtype in DTYPES}
    for seed in range(arguments.seeds):
        for dtype in DTYPES:
            found[dtype].append(measure(arguments.name, dtype, seed, arguments.rounds))
            print("seed", seed, dtype, found[dtype][-1], flush=True)
    print("| `wire.dtype` | MB sent | MB received | accuracy, % | minus float32, points |")
    print("|---|---|---|---|---|")
    reference = [accuracy for _, _, accuracy in found["float32"]]
    for dtype, results in found.items():
        sent, received = results[-1][:2]
        accuracies = [accuracy for _, _, accuracy in results]
        gaps = [one - other for one, other in zip(accuracies, reference, strict=True)]
        print(
            f"| `{dtype}` | {sent:.3f} | {received:.3f} | {_mean(accuracies)} | "
            f"{statistics.mean(gaps):+.2f} ± {_standard_error(gaps):.2f} |"
        )


def _mean(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.2f} ± {spread:.2f}"


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


if __name__ == "__main__":
    main()

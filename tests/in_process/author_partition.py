"""FedAvg or FedGen on the one partition that FedGen's author used, as docs/reproduction.md tells.

    MOONFLOWER_DATA_DIR=FOLDER .venv/bin/python -m tests.in_process.author_partition --seeds 3 \
        --algorithm fedavg

The published code draws the clients' shares once, from seed 42, and varies only weights and the
order of batches and clients from run to run. ``moonflower reproduce`` draws them anew for every
seed. The app runs in this process, with the settings of the preset ``fedgen-official``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from common.data.splits import Rows
from scripts.moonflower.run_config import read_preset
from tests.in_process.grid import run_in_process

USERS = 20
AUTHORS_SEED = 42
BEST = 5
"""The published code averages so many best rounds."""


def authors_partition(labels: np.ndarray[Any, np.dtype[np.int64]], **numbers: Any) -> list[Rows]:
    """Return the shares that data/Mnist/generate_niid_dirichlet.py draws with its seeds.

    The streams of Python's and NumPy's older generators are the same in all their versions.
    """
    alpha, ratio = numbers["alpha"], numbers["ratio"]
    order = list(range(10))
    random.Random(AUTHORS_SEED).shuffle(order)
    stream = np.random.RandomState(AUTHORS_SEED)
    cap = ratio * len(labels) / USERS
    while True:
        shares: list[list[int]] = [[] for _ in range(USERS)]
        for label in order:
            rows = np.flatnonzero(labels == label)
            drawn = list(range(len(rows)))
            stream.shuffle(drawn)
            drawn = drawn[: int(min(cap, int(ratio * len(rows))))]
            proportions = stream.dirichlet(np.repeat(alpha, USERS))
            proportions = proportions * [len(share) < cap for share in shares]
            cuts = (np.cumsum(proportions / proportions.sum()) * len(drawn)).astype(int)[:-1]
            for share, piece in zip(shares, np.split(np.array(drawn), cuts), strict=True):
                share.extend(rows[piece].tolist())
        if min(map(len, shares)) >= 10:
            return [np.array(share, dtype=np.int64) for share in shares]


def measure(algorithm: str, seed: int, rounds: int) -> float:
    """Return the mean of the best rounds' accuracies under the official protocol, in per cent."""
    chosen = {"algorithm": algorithm, "seed": seed, "num-rounds": rounds, "experiment": "exp"}
    settings = {**read_preset("fedgen-official"), **chosen}
    with (
        tempfile.TemporaryDirectory() as folder,
        patch(
            "common.data.partition.fedgen_partition", lambda y, _, **kw: authors_partition(y, **kw)
        ),
    ):
        results = run_in_process(settings, USERS, Path(folder))
        text = (results / "metrics.jsonl").read_text(encoding="utf-8")
    accuracies = [json.loads(line)["clients"]["weighted"] for line in text.splitlines()]
    return 100 * statistics.mean(sorted(accuracies)[-BEST:])


def main() -> None:
    """Measure, and print mean and standard deviation over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--algorithm", choices=["fedavg", "fedgen"], required=True)
    arguments = parser.parse_args()
    values = []
    for seed in range(arguments.seeds):
        values.append(measure(arguments.algorithm, seed, arguments.rounds))
        print(f"seed {seed}: {values[-1]:.2f}", flush=True)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    print(f"{statistics.mean(values):.2f} ± {spread:.2f}")


if __name__ == "__main__":
    main()

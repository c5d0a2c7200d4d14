"""Part f: a whole simulation, how much of its time goes into local training."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.moonflower.research.benchmark.lines import Line, Target
from scripts.moonflower.research.benchmark.sizes import Sizes
from scripts.moonflower.run_config import Plan, make_plan
from scripts.moonflower.scratch import scratch_folder
from scripts.moonflower.simulation import Machine, default_actors, simulate
from server_app.experiment.layout import METRICS_FILE

_SHAPE = (3, 32, 32)


def whole_simulation(sizes: Sizes) -> list[Line]:
    """Part f: seconds in local training over the seconds that the machine's cores had.

    All clients hold the same examples, so that they have equally much to do: how evenly a
    federation's work is split is no property of the app.
    """
    plan = make_simulation(sizes)
    actors = default_actors(plan.clients, sizes.threads)
    with scratch_folder() as folder:
        write_examples(folder, sizes.examples * plan.clients)
        folders = {
            f"MOONFLOWER_{name}_DIR": folder / path
            for name, path in (("DATA", "."), ("STATE", "state"), ("OUTPUT", "output"))
        }
        began = time.perf_counter()
        simulate(plan, Machine(folders, actors), folder / "log", lambda line: None)
        seconds = time.perf_counter() - began
        metrics = folder / "output" / plan.settings.experiment / METRICS_FILE
        rounds = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [_line(rounds, actors, seconds)]


def make_simulation(sizes: Sizes) -> Plan:
    """Return MOON's CIFAR-10 setting on equal shares of made-up examples, without evaluation."""
    settings = {
        "data.source": "npz",
        "data.image-shape": "x".join(str(size) for size in _SHAPE),
        "data.num-classes": 10,
        "data.partition": "iid",
        "data.client-test": "validation",
        "data.validation-fraction": 0.01,
        "server.fraction-evaluate": 0.0,
        "server.evaluate-every": sizes.rounds,
        "server.straggler-grace": 3600.0,  # however slow the machine, nobody is left out
        "num-rounds": sizes.rounds,
        "train.local-epochs": sizes.simulated_epochs,
        "train.cpu-threads": sizes.threads,
        "experiment": "benchmark",
    } | sizes.settings
    return make_plan("moon-cifar10", [], settings, sizes.simulated_clients)


def write_examples(folder: Path, count: int) -> None:
    """Write ``train.npz`` with made-up images for all clients together."""
    random = np.random.default_rng(0)
    np.savez(
        folder / "train.npz",
        x=random.integers(0, 256, (count, *_SHAPE), dtype=np.uint8),
        y=random.integers(0, 10, count),
    )


def training_share(rounds: Sequence[Mapping[str, Any]], actors: int) -> float:
    """Return the seconds in local training over those of all actors, the first round left out.

    Parameters
    ----------
    rounds : sequence of mappings
        Lines of metrics.jsonl, at least two. ``train-seconds`` is the mean of the participants,
        each of which trained on as many examples as the others.
    actors : int
        That trained at once.

    Raises
    ------
    ValueError
        There is no round but the first.
    """
    if len(rounds) < 2:
        raise ValueError(
            f"{len(rounds)} rounds: at least 2 are needed, since Ray's actors start in the first"
        )
    trained = sum(len(line["participants"]) * line["train"]["train-seconds"] for line in rounds[1:])
    return float(trained / (actors * sum(line["seconds"]["total"] for line in rounds[1:])))


def _line(rounds: Sequence[Mapping[str, Any]], actors: int, seconds: float) -> Line:
    later = rounds[1:]
    in_rounds = sum(line["seconds"]["total"] for line in rounds)
    clients = len(rounds[0]["participants"])
    return Line(
        "f",
        f"simulation, {clients} clients, {actors} at once: seconds in training / seconds",
        training_share(rounds, actors),
        Target("at least", 0.85),
        {
            "round s": sum(line["seconds"]["total"] for line in later) / len(later),
            "client's training s": sum(line["train"]["train-seconds"] for line in later)
            / len(later),
            "first round s": rounds[0]["seconds"]["total"],
            "before and after the rounds s": seconds - in_rounds,
        },
    )

"""What trackers cost a run: ``python -m tests.in_process.tracking_overhead``.

One run with all trackers on; counted is the time that the ServerApp spends on telling and asking
them, next to that of the rounds. How busy their own processes are is counted by the system.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from pathlib import Path
from unittest import mock

from server_app.tracking.beside import Tracking
from server_app.tracking.destination import PROMETHEUS_VARIABLE
from tests.in_process.grid import run_in_process

ROUNDS, CLIENTS = 60, 3


def main() -> None:
    """Run, and print the ratio."""
    spent = {"seconds": 0.0}

    def timed(name: str) -> object:
        honest = getattr(Tracking, name)

        def call(self: Tracking) -> object:
            began = time.perf_counter()
            try:
                return honest(self)
            finally:
                spent["seconds"] += time.perf_counter() - began

        return mock.patch.object(Tracking, name, call)

    with tempfile.TemporaryDirectory() as scratch:
        os.environ[PROMETHEUS_VARIABLE] = scratch
        settings = {
            "num-rounds": ROUNDS,
            "experiment": "exp",
            "tracking": "tensorboard,mlflow,wandb",
        }
        with timed("round_written"), timed("complaints"):  # type: ignore[attr-defined]
            folder = run_in_process(settings, CLIENTS, Path(scratch))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    total = sum(line["seconds"]["total"] for line in lines)
    busy = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{ROUNDS} rounds took {total:.2f} s, telling and asking four trackers "
        f"{spent['seconds'] * 1000:.1f} ms: {spent['seconds'] / total:.3%}. Their processes took "
        f"{busy.ru_utime + busy.ru_stime:.1f} s of a core, starts included"
    )


if __name__ == "__main__":
    main()

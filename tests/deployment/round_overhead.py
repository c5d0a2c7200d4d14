"""Seconds that a round costs beyond training, next to a plain Flower app, on the same federation.

Not a test: ``python -m tests.deployment.round_overhead`` prints a table, on a machine that does
nothing else. Server, fence and three nodes run as a person sets them up, over TLS, and both apps
train the same network on the same examples; clients evaluate in every round. The plain app is
Flower's own FedAvg in Flower's own loop, with nothing checked, kept or written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.deployment.sites import SETTINGS, write_sites
from tests.real.deployment import Deployment
from tests.settings import ROOT

PLAIN = Path(__file__).parent / "plain_app"


@dataclass(frozen=True)
class Rounds:
    """Of one app; means over clients of the seconds in their training function."""

    app: str
    seconds: Sequence[float]
    training: Sequence[float]

    @property
    def beyond(self) -> list[float]:
        """Seconds of each round but the first, which prepares data, beyond training."""
        return [a - b for a, b in zip(self.seconds[1:], self.training[1:], strict=True)]

    def row(self) -> str:
        """Return the line of the table."""
        low, high = min(self.beyond), max(self.beyond)
        return (
            f"| {self.app} | {statistics.median(self.seconds[1:]):.1f} "
            f"| {statistics.median(self.training[1:]):.2f} "
            f"| {statistics.median(self.beyond):.1f} ({low:.1f} to {high:.1f}) |"
        )


def plain(deployment: Deployment) -> Rounds:
    """Run the plain app."""
    run = deployment.submit_other(PLAIN)
    run.wait()
    (line,) = [each for each in run.log.splitlines() if "ROUNDS " in each]
    return Rounds("plain Flower", **json.loads(line.split("ROUNDS ")[1]))


def moonflower(deployment: Deployment, algorithm: str, rounds: int) -> Rounds:
    """Run Moonflower."""
    settings = {
        **SETTINGS,
        "algorithm": algorithm,
        "num-rounds": rounds,
        "server.fraction-evaluate": 1.0,
        "experiment": f"overhead-{algorithm}".replace("+", "-"),
    }
    run = deployment.submit(ROOT, settings)
    run.wait()
    lines = run.lines()
    return Rounds(
        f"Moonflower, {algorithm}",
        [line["seconds"]["total"] for line in lines],
        [line["train"]["train-seconds"] for line in lines],
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.deployment.round_overhead")
    parser.add_argument("--rounds", type=int, default=10, help="at least 3 (plain: always 10)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(Path(folder) / "deployment", write_sites(Path(folder) / "sites"))
        try:
            deployment.start()
            print("| app | round, s | in training, s | beyond it, s |\n|---|---|---|---|")
            # Before and after, since the machine may change its mind.
            print(plain(deployment).row(), flush=True)
            for algorithm in ("fedavg", "moon+fedgen"):
                print(moonflower(deployment, algorithm, rounds).row(), flush=True)
            print(plain(deployment).row(), flush=True)
        finally:
            deployment.close()


if __name__ == "__main__":
    main()

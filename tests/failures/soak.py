"""A long run of short rounds with random kills: does anything grow?

Started by ``scripts/soak``; not part of CI, since 200 rounds take an hour or more.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tests.in_process.reference import SETTINGS
from tests.real.app_copy import AppCopy, make_app
from tests.real.loopback import Loopback
from tests.real.measurements import disk_mb, memory_mb, open_files
from tests.real.processes import wait_until
from tests.real.run import Run

STUCK = 900.0
"""Seconds without a new round after which the soak gives up."""

CLIENT_APP, NODE, SERVER_APP, SUPERLINK = "client-app", "node", "server-app", "superlink"
KILLS = {CLIENT_APP: 0.2, NODE: 0.05, SERVER_APP: 0.03, SUPERLINK: 0.02}
"""Probability of a kill in a round."""


@dataclass(frozen=True)
class Row:
    """What is measured at the end of a round; memory is resident."""

    round: int
    seconds: float
    killed: str
    superlink_mb: float
    superlink_files: int
    server_app_mb: float
    server_app_files: int
    node_mb: float
    node_files: int
    database_mb: float
    output_mb: float
    state_mb: float
    flwr_home_mb: float


@dataclass(frozen=True)
class Allowance:
    """How much of growth counts as flat: a part of the earlier value, or an absolute amount."""

    part: float
    amount: float


LIMITS = {
    "superlink_mb": Allowance(0.10, 10.0),
    "superlink_files": Allowance(0.10, 8.0),
    "server_app_mb": Allowance(0.10, 25.0),
    "server_app_files": Allowance(0.10, 8.0),
    "node_mb": Allowance(0.10, 10.0),
    "node_files": Allowance(0.10, 8.0),
    "database_mb": Allowance(0.10, 2.0),
    # A line of metrics per round stays for good: 2 kB.
    "output_mb": Allowance(0.10, 1.0),
    "state_mb": Allowance(0.10, 1.0),
    "flwr_home_mb": Allowance(0.10, 2.0),
}


class Soak:
    """One soak; :meth:`run` yields a row per round."""

    def __init__(self, folder: Path, clients: int, rounds: int, seed: int) -> None:
        self.federation = Loopback(folder, clients)
        self.settings: dict[str, Any] = {
            **SETTINGS,
            "experiment": "soak",
            "num-rounds": rounds,
            "seed": seed,
            "train.local-epochs": 1,
            "train.local-steps": 2,
            "server.min-clients": clients,
            # Two of five: most of a short round is the start of the clients' processes.
            "server.fraction-train": 0.4,
            "server.min-replies": 1,
            "server.straggler-grace": 1.0,
            "server.evaluate-every": 10,
        }
        self._rounds = rounds
        self._random = random.Random(seed)
        self._app: AppCopy = make_app(folder / "app")
        self._submitted: Run | None = None

    def run(self, table: Path) -> list[Row]:
        """Run all rounds, write ``table`` as it goes, and return its rows."""
        rows: list[Row] = []
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)])
            writer.writeheader()
            self.federation.start()
            self._submit(resume=False)
            while len(rows) < self._rounds:
                killed = self._kill_something() if rows else ""
                rows.append(self._finish_round(len(rows) + 1, killed))
                writer.writerow(asdict(rows[-1]))
                file.flush()
                if len(rows) % 10 == 0 or len(rows) == 1:
                    show(rows[-1])
        return rows

    def _submit(self, *, resume: bool) -> None:
        self._submitted = self.federation.submit(
            self._app.folder, {**self.settings, "resume": resume}
        )

    def _finish_round(self, number: int, killed: str) -> Row:
        began = time.monotonic()
        wait_until(lambda: self._lines() >= number, f"round {number}", STUCK, self._log)
        return self._measure(number, time.monotonic() - began, killed)

    def _log(self) -> str:
        return self._submitted.log[-4000:] if self._submitted else ""

    def _lines(self) -> int:
        file = self.federation.output / "soak" / "metrics.jsonl"
        return len(file.read_bytes().splitlines()) if file.exists() else 0

    def _kill_something(self) -> str:
        killed = [name for name, chance in KILLS.items() if self._random.random() < chance]
        for name in killed:
            # Somewhere in the round.
            time.sleep(self._random.uniform(0.0, 8.0))
            self._kill(name)
        return "+".join(killed)

    def _kill(self, name: str) -> None:
        federation = self.federation
        index = self._random.choice(sorted(federation.nodes))
        if name == CLIENT_APP:
            federation.nodes[index].signal(signal.SIGKILL, "flwr-clientapp")
        elif name == NODE:
            federation.nodes[index].kill()
            federation.start_node(index)
        elif name == SERVER_APP:
            federation.superlink.signal(signal.SIGKILL, "flwr-serverapp")
            self._resubmit()
        elif name == SUPERLINK:
            federation.superlink.kill()
            federation.start_superlink()
            self._resubmit()

    def _resubmit(self) -> None:
        if self._lines() < self._rounds and self._submitted is not None:
            # The SuperLink notices the death of a ServerApp within a minute.
            self._submitted.group.kill()
            self._submit(resume=True)

    def _measure(self, number: int, seconds: float, killed: str) -> Row:
        federation = self.federation
        superlink = federation.superlink.pids("flower-superlink")
        server_app = federation.superlink.pids("flwr-serverapp")
        nodes = [pid for node in federation.nodes.values() for pid in node.pids("flower-supernode")]
        return Row(
            round=number,
            seconds=round(seconds, 1),
            killed=killed,
            superlink_mb=memory_mb(superlink),
            superlink_files=open_files(superlink),
            server_app_mb=memory_mb(server_app),
            server_app_files=open_files(server_app),
            node_mb=memory_mb(nodes),
            node_files=open_files(nodes),
            database_mb=disk_mb(sorted(federation.folder.glob("superlink.sqlite*"))),
            output_mb=disk_mb([federation.output]),
            state_mb=disk_mb([federation.state(index) for index in range(federation.clients)]),
            flwr_home_mb=disk_mb([federation.folder / "home"]),
        )


def show(row: Row) -> None:
    """Print a row, with the names of its columns the first time."""
    names = [field.name for field in fields(Row)]
    if row.round == 1:
        print("  ".join(names), flush=True)
    print("  ".join(f"{getattr(row, name)!s:>{len(name)}}" for name in names), flush=True)


def growth(rows: Sequence[Row], column: str) -> tuple[float, float]:
    """Return the medians of the second and of the last quarter of the rounds.

    The first quarter is left out: caches fill, and the first checkpoints are written.
    """
    values = [float(getattr(row, column)) for row in rows]
    quarter = max(1, len(values) // 4)
    return statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])


def verdict(rows: Sequence[Row]) -> list[str]:
    """Return a sentence about every column that grew by more than its limit."""
    problems = []
    for column, limit in LIMITS.items():
        early, late = growth(rows, column)
        if late > early + max(limit.part * early, limit.amount):
            problems.append(f"{column} grew from {early:g} to {late:g}")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak and return the exit code: 0 where everything is flat."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="at least 4 (default 200)")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the kills and of the run")
    parser.add_argument("--table", type=Path, default=Path("soak.csv"), help="the CSV to write")
    options = parser.parse_args(arguments)
    if options.rounds < 4 or options.clients < 1:
        parser.error("--rounds needs at least 4, --clients at least 1")
    folder = Path(tempfile.mkdtemp(prefix="moonflower-soak-"))
    soak = Soak(folder, options.clients, options.rounds, options.seed)
    try:
        rows = soak.run(options.table)
    finally:
        soak.federation.close()
    problems = verdict(rows)
    for column in LIMITS:
        print("{}: {:g} -> {:g}".format(column, *growth(rows, column)))
    print(f"the table is in {options.table}")
    print("not flat: " + "; ".join(problems) if problems else "flat")
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

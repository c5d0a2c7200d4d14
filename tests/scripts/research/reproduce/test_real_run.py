"""The real thing: cells as ``flwr run`` with Ray, stopped, killed, resumed."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.moonflower.processes import adopt_orphans, descendants, end_descendants
from tests.scripts.interrupts import heed_interrupts
from tests.settings import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]

MAIN = "from scripts.moonflower import main; main()"
TABLE = """
title = "Digits"
source = "no paper"
seeds = [0]
notes = []
[settings]
data.source = "digits"
data.min-partition-size = 1
model.name = "mlp"
server.min-clients = 3
server.fraction-train = 1.0
server.evaluate-every = 1
[scores.global]
protocol = "global"
number = "global.accuracy"
best = 0
why = "a test"
[scores.clients]
protocol = "global"
number = "clients.mean"
best = 0
over = "clients"
why = "a test"
[[columns]]
name = "1"
label = "alpha 1"
settings = { data.alpha = 1.0 }
[[rows]]
name = "fedavg"
label = "FedAvg"
preset = "fedgen-paper"
settings = { algorithm = "fedavg" }
score = "global"
paper = { "1" = [50.0, 1.0] }
[[rows]]
name = "solo"
label = "SOLO"
preset = "fedgen-paper"
settings = { algorithm = "fedavg", model.sharing = "nothing" }
score = "clients"
"""


class Reproductions:
    """Starts ``moonflower reproduce`` with a table of its own."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "out"
        self.table = folder / "digits.toml"
        self.table.write_text(TABLE)
        # Not below tmp_path: Ray's sockets need a short path.
        self.scratch = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the table."""
        command = [sys.executable, "-c", MAIN, "reproduce", str(self.table)]
        return subprocess.Popen(
            [*command, "--output", str(self.output), *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=heed_interrupts,  # noqa: PLW1509 (one thread)
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run to the end; return exit code and what was printed."""
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=900)
        return process.returncode, out

    def lines(self, row: str) -> list[dict[str, dict[str, dict[str, float]]]]:
        """Return the whole lines of a row's ``metrics.jsonl``."""
        path = self.output / "runs" / f"digits.{row}.1.seed-0" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_round(self, number: int) -> int:
        """Wait until FedAvg has played so many rounds; return how many it has."""
        deadline = time.monotonic() + 600
        while len(self.lines("fedavg")) < number:
            assert time.monotonic() < deadline, "no round was played"
            time.sleep(0.1)
        return len(self.lines("fedavg"))


def left_over(before: set[int], patience: float) -> set[int]:
    """Return what was started since and is still there after so many seconds at most."""
    deadline = time.monotonic() + patience
    while left := descendants(os.getpid()) - before:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return left


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Reproductions]:
    """Give a place; afterwards, fail if a process was left behind."""
    adopt_orphans()  # what is left behind becomes a child of this process
    before = descendants(os.getpid())
    place = Reproductions(tmp_path)
    yield place
    left = left_over(before, 0.0)
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    if left:
        end_descendants()
    assert left == set()


def test_a_table_is_run_written_and_not_run_again(table: Reproductions) -> None:
    code, out = table.run("--rounds", "2", "--jobs", "2")
    assert code == 0, out
    accuracy = 100 * table.lines("fedavg")[-1]["global"]["accuracy"]  # type: ignore[operator]
    alone = [100 * each for each in table.lines("solo")[-1]["clients"]["per-client"].values()]
    assert len(alone) == 3
    mean = sum(alone) / 3
    std = (sum((each - mean) ** 2 for each in alone) / 2) ** 0.5
    text = (table.output / "digits.md").read_text()
    assert f"| FedAvg | 50.00 ± 1.00 | {accuracy:.2f} (1 run) |" in text
    assert f"| SOLO | - | {mean:.2f} ± {std:.2f} (1 run) |" in text
    assert (table.output / "digits.png").read_bytes().startswith(b"\x89PNG")
    code, out = table.run("--rounds", "2")
    assert code == 0, out
    assert "2 of 2 cells are finished already" in out
    assert "begins" not in out
    assert (table.output / "digits.md").read_text().splitlines()[:20] == text.splitlines()[:20]


def test_ctrl_c_and_kill_9_lose_at_most_a_round_and_leave_nothing(table: Reproductions) -> None:
    wanted = ["--rounds", "300", "--only", "fedavg"]
    before = descendants(os.getpid())
    stopped = table.start(*wanted)
    seen = table.wait_for_round(2)
    stopped.send_signal(signal.SIGINT)
    out, _ = stopped.communicate(timeout=300)
    assert stopped.returncode == 130, out
    assert "stopped by SIGINT; the same command goes on" in out
    assert left_over(before, 0.0) == set()

    killed = table.start(*wanted)
    seen = table.wait_for_round(max(seen, len(table.lines("fedavg"))) + 2)
    killed.kill()
    out, _ = killed.communicate(timeout=300)
    assert left_over(before, 120.0) == set()

    rounds = len(table.lines("fedavg"))
    assert rounds >= seen
    code, out = table.run("--rounds", str(rounds + 2), "--only", "fedavg")
    assert code == 2, out
    assert "begun with 300 rounds and can't be made shorter" in out
    again = table.start(*wanted)
    assert again.stdout is not None
    going_on = next(line for line in again.stdout if "goes on after round" in line)
    match = re.search(r"after round (\d+)", going_on)
    assert match is not None
    assert int(match[1]) >= rounds
    table.wait_for_round(rounds + 1)
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=300)
    assert again.returncode == 143
    assert [line["round"] for line in table.lines("fedavg")] == list(
        range(1, len(table.lines("fedavg")) + 1)
    )

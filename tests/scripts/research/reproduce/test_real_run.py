"""The real thing: cells as ``flwr run`` with Ray, stopped, killed, resumed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.command import Command, watched
from tests.real.processes import SLOW, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]

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
    """``moonflower reproduce`` with a table of its own."""

    def __init__(self, folder: Path, command: Command) -> None:
        self.output = folder / "out"
        self.command = command
        self._table = folder / "digits.toml"
        self._table.write_text(TABLE)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the table."""
        places = [str(self._table), "--output", str(self.output)]
        return self.command.start("reproduce", *places, *arguments)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run to the end; return exit code and what was printed."""
        places = [str(self._table), "--output", str(self.output)]
        return self.command.run("reproduce", *places, *arguments)

    def lines(self, row: str) -> list[dict[str, dict[str, dict[str, float]]]]:
        """Return the whole lines of a row's ``metrics.jsonl``."""
        path = self.output / "runs" / f"digits.{row}.1.seed-0" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_round(self, number: int) -> int:
        """Wait until FedAvg has played so many rounds; return how many it has."""
        wait_until(lambda: len(self.lines("fedavg")) >= number, f"round {number}", SLOW)
        return len(self.lines("fedavg"))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Reproductions]:
    """Give a place; afterwards, fail if a process was left behind."""
    with watched() as command:
        yield Reproductions(tmp_path, command)


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


@pytest.mark.long
def test_ctrl_c_and_kill_9_lose_at_most_a_round_and_leave_nothing(table: Reproductions) -> None:
    wanted = ["--rounds", "300", "--only", "fedavg"]
    stopped = table.start(*wanted)
    seen = table.wait_for_round(2)
    stopped.send_signal(signal.SIGINT)
    out, _ = stopped.communicate(timeout=300)
    assert stopped.returncode == 130, out
    assert "stopped by SIGINT; the same command goes on" in out
    assert table.command.left() == []

    killed = table.start(*wanted)
    seen = table.wait_for_round(max(seen, len(table.lines("fedavg"))) + 2)
    killed.kill()
    out, _ = killed.communicate(timeout=300)
    assert table.command.left(SLOW) == []

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

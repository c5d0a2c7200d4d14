"""The real thing: ``flwr run`` with Ray, as scripts/quickstart starts it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.moonflower.processes import adopt_orphans, descendants, end_descendants
from tests.scripts.interrupts import heed_interrupts
from tests.settings import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]

MAIN = "from scripts.moonflower import main; main()"
QUICK = ["--rounds", "2", "--clients", "3", "-c", "train.local-epochs=1"]


class Runs:
    """Starts ``moonflower simulate`` with folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        self.state = folder / "state"
        # Not below tmp_path: Ray's sockets need a short path.
        self.scratch = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.scratch),
        }

    def start(self, experiment: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a run of that name."""
        places = ["--output-dir", str(self.output), "--state-dir", str(self.state)]
        command = [sys.executable, "-c", MAIN, "simulate", "--experiment", experiment, *places]
        return subprocess.Popen(
            [*command, *arguments],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=heed_interrupts,  # noqa: PLW1509 (one thread)
        )

    def run(self, experiment: str, *arguments: str) -> tuple[int, str]:
        """Run to the end; return exit code and everything printed."""
        process = self.start(experiment, *arguments)
        out, _ = process.communicate(timeout=900)
        return process.returncode, out

    def rounds(self, experiment: str) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``."""
        lines = (self.output / experiment / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Give a place for runs; afterwards, fail if one left a process or a folder behind."""
    adopt_orphans()  # what a run leaves behind becomes a child of this process
    before = descendants(os.getpid())
    place = Runs(tmp_path)
    yield place
    left = descendants(os.getpid()) - before
    names = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in left]
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    if left:
        end_descendants()
    assert names == []
    assert list(place.scratch.iterdir()) == []
    place.scratch.rmdir()


def test_the_quickstart_trains_moon_to_090_and_says_so(runs: Runs) -> None:
    code, out = runs.run("quick")
    assert code == 0, out
    last = runs.rounds("quick")[-1]
    assert last["round"] == 20
    assert last["global"]["accuracy"] >= 0.90
    assert f"{last['global']['accuracy']:.3f}" in out.splitlines()[-7]
    assert sum(line.startswith("round ") for line in out.splitlines()) == 20
    for name in ("metrics.jsonl", "settings.json", "best", "final", "run.log"):
        assert str(runs.output / "quick" / name) in out
        assert (runs.output / "quick" / name).exists()
    assert len(list((runs.state / "quick").glob("client-*"))) == 10


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedgen", "moon+fedgen"])
def test_every_other_algorithm_reaches_085_on_the_digits(runs: Runs, algorithm: str) -> None:
    code, out = runs.run("other", "--algorithm", algorithm)
    assert code == 0, out
    last = runs.rounds("other")[-1]
    assert last["round"] == 20
    assert last["global"]["accuracy"] >= 0.85
    assert algorithm in out


def test_one_actor_and_two_give_the_same_bits(runs: Runs) -> None:
    for actors in ("1", "2"):
        arguments = ["--algorithm", "moon+fedgen", "--actors", actors, *QUICK]
        code, out = runs.run(f"actors-{actors}", *arguments)
        assert code == 0, out
    one, two = (
        (runs.output / name / "final" / "model.safetensors").read_bytes()
        for name in ("actors-1", "actors-2")
    )
    assert one == two


def test_missing_data_end_the_run_with_the_folder_and_the_switch(
    runs: Runs, tmp_path: Path
) -> None:
    empty = tmp_path / "no-data"
    code, out = runs.run("missing", "-c", "data.source=mnist", "--data-dir", str(empty), *QUICK)
    assert code == 1
    assert str(empty) in out
    assert "data.download" in out
    assert "Traceback" not in out
    assert str(runs.output / "missing.log") in out
    assert (runs.output / "missing.log").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_running(runs: Runs, number: signal.Signals) -> None:
    process = runs.start("stopped", "--rounds", "1000", "--clients", "3")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round "):
            break
    process.send_signal(number)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + number, out
    assert f"stopped by {number.name}" in out
    assert "--experiment stopped -c resume=true" in out

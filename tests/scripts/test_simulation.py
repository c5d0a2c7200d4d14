"""The real thing: ``flwr run`` with Ray, as scripts/quickstart starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from scripts.moonflower.flwr import CONNECTION
from tests.in_process.reference import differences, reference
from tests.real.command import Command, watched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc"),
]


class Runs:
    """``moonflower simulate`` with folders of its own."""

    def __init__(self, folder: Path, command: Command) -> None:
        self.output = folder / "output"
        self.state = folder / "state"
        self._command = command
        self._places = ["--output-dir", str(self.output), "--state-dir", str(self.state)]

    def start(self, experiment: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a run of that name."""
        return self._command.start(
            "simulate", "--experiment", experiment, *self._places, *arguments
        )

    def run(self, experiment: str, *arguments: str) -> tuple[int, str]:
        """Run to the end; return exit code and everything printed."""
        return self._command.run("simulate", "--experiment", experiment, *self._places, *arguments)

    def rounds(self, experiment: str) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``."""
        lines = (self.output / experiment / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Give a place for runs; afterwards, fail if one left a process or a folder behind."""
    with watched() as command:
        yield Runs(tmp_path, command)
        assert list(command.scratch.iterdir()) == []


def test_the_quickstart_trains_moon_to_090_and_says_so(runs: Runs) -> None:
    code, out = runs.run("quick")
    assert code == 0, out
    last = runs.rounds("quick")[-1]
    assert last["round"] == 20
    assert last["global"]["accuracy"] >= 0.90
    (row,) = (line for line in out.splitlines() if line.startswith("│ moon"))
    assert f"{last['global']['accuracy']:.3f}" in row
    assert sum(line.startswith("round ") for line in out.splitlines()) == 20
    for name in ("metrics.jsonl", "settings.json", "best", "final", "run.log"):
        assert str(runs.output / "quick" / name) in out
        assert (runs.output / "quick" / name).exists()
    assert len(list((runs.state / "quick").glob("client-*"))) == 10


@pytest.mark.parametrize("actors", ["2", pytest.param("1", marks=pytest.mark.long)])
def test_ray_gives_the_bits_of_the_same_run_in_one_process(
    runs: Runs, tmp_path: Path, actors: str
) -> None:
    settings = {"algorithm": "moon+fedgen", "num-rounds": 2, "train.local-epochs": 1}
    chosen = ["--algorithm", "moon+fedgen", "--rounds", "2", "-c", "train.local-epochs=1"]
    code, out = runs.run("bits", "--clients", "3", "--actors", actors, *chosen)
    assert code == 0, out
    found = safetensors.torch.load_file(runs.output / "bits" / "final" / "model.safetensors")
    expected = reference(tmp_path, {**settings, "experiment": "reference"}, clients=3)
    assert differences(found, expected) == []


def test_neither_a_proxy_nor_an_old_terminal_nor_a_folder_of_that_name_ends_a_run(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    # Flower takes it for the path of an app, in whose place its older versions wanted one.
    clone = tmp_path / CONNECTION
    clone.mkdir()
    (clone / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    code, out = runs.run("old", "--clients", "2", "--rounds", "1", "-c", "train.local-epochs=1")
    assert code == 0, out
    assert " +- " in out, "the table's plus-minus"
    assert "no readable result" not in out


def test_missing_data_end_the_run_with_the_folder_and_the_switch(
    runs: Runs, tmp_path: Path
) -> None:
    empty = tmp_path / "no-data"
    code, out = runs.run("missing", "-c", "data.source=mnist", "--data-dir", str(empty))
    assert code == 1
    assert str(empty) in out
    assert "data.download" in out
    assert "Traceback" not in out
    assert str(runs.output / "missing.log") in out
    assert (runs.output / "missing.log").is_file()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
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

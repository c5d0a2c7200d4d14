"""The benchmark runs, and what it prints and writes is what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from common import records
from scripts.moonflower.commands import app
from scripts.moonflower.research.benchmark.aggregation import (
    DifferentResultError,
    app_aggregation,
    flowers_aggregation,
    make_round,
)
from scripts.moonflower.research.benchmark.lines import Line, Target
from scripts.moonflower.research.benchmark.one_client import settings_of
from scripts.moonflower.research.benchmark.result import markdown
from scripts.moonflower.research.benchmark.sizes import Sizes
from scripts.moonflower.research.benchmark.whole import training_share

TINY = {
    "repetitions": [1],
    "examples": [64],
    "epochs": [1],
    "steps": [1],
    "clients": [2, 3],
    "server-steps": [1],
    "replies": [2],
    "simulated-clients": [2],
    "simulated-epochs": [1],
    "rounds": [2],
}


def run(folder: Path, *options: str) -> list[dict[str, object]]:
    """Run the command with tiny sizes and return the lines that it wrote."""
    sizes = [f"--{name}={value}" for name, values in TINY.items() for value in values]
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(app, ["benchmark", "--output", str(folder), *sizes, *options])
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0, result.output
    content = json.loads((folder / "benchmark.json").read_text())
    assert content["machine"]["torch"] == torch.__version__
    lines: list[dict[str, object]] = content["lines"]
    table = (folder / "benchmark.md").read_text()
    assert all(f"| {line['what']} |" in table for line in lines)
    return lines


def test_every_part_in_this_process_gives_its_lines(tmp_path: Path) -> None:
    options = [word for part in "abcd" for word in ("--part", part)]
    lines = run(tmp_path, *options)
    # a: augmented, fixed and the gain; b: two objectives; c: three kinds of heads, each with two
    # numbers of clients, with and without the generator, and the growth; d: the strategy alone
    # and all of the server's work.
    assert [line["part"] for line in lines] == [*"aaa", *"bb", *("c" * 15), *"dd"]
    assert all(isinstance(line["ratio"], float) and line["ratio"] > 0 for line in lines)


@pytest.mark.slow
def test_a_start_and_a_simulation_are_measured(tmp_path: Path) -> None:
    start, _, simulation = run(tmp_path, "--part", "e", "--part", "f")
    assert isinstance(start["ratio"], float)
    assert start["ratio"] > 0
    assert isinstance(simulation["ratio"], float)
    assert 0 < simulation["ratio"] < 1  # more than all the time of all actors would be a mistake


def test_settings_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    options = ["benchmark", "--part", "a", "-c", "moon.nu=1", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    assert "moon.nu" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--part", "c", "-c", "moon.nu=1"], "moon.nu"),
        (["--part", "d", "-c", "algorithm=fedgen"], "algorithm=fedgen: each part has its own"),
        (["--part", "a", "--examples", "64", "-c", "train.batch-size=100"], "the client's 64"),
        (["--part", "c", "--output", "/dev/null/x"], "nothing can be written to /dev/null/x"),
    ],
)
def test_what_can_not_be_measured_is_refused_first(
    options: list[str], message: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["benchmark", "--output", str(tmp_path), *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_settings_are_written_down_and_one_number_of_clients_has_no_growth(tmp_path: Path) -> None:
    sizes = ["--clients", "2", "--server-steps", "1", "--repetitions", "1"]
    options = ["benchmark", "--part", "c", *sizes, "-c", "moon.mu=3", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "benchmark.json").read_text())
    assert content["machine"]["settings"] == "moon.mu=3"
    assert not [line for line in content["lines"] if "cost of" in line["what"]]


def test_aggregation_by_the_app_is_flowers_to_the_bit() -> None:
    this = make_round(settings_of("moon-cifar10", Sizes(), {}), 3)
    expected = flowers_aggregation(this.replies())
    for checked in (False, True):
        found = app_aggregation(this, this.replies(), checked=checked)
        for name, array in expected.items():
            assert found[name].data == array.data, name


def test_replies_that_the_app_refuses_are_no_benchmark() -> None:
    this = make_round(settings_of("moon-cifar10", Sizes(), {}), 2)
    replies = this.replies()
    del replies[1].content[records.METRICS]
    with pytest.raises(DifferentResultError, match="MetricRecord"):
        app_aggregation(this, replies, checked=True)


def test_the_share_of_training_leaves_out_the_round_in_which_ray_starts() -> None:
    rounds = [
        {"participants": ["a"] * 5, "train": {"train-seconds": 1.0}, "seconds": {"total": 100.0}},
        {"participants": ["a"] * 5, "train": {"train-seconds": 3.0}, "seconds": {"total": 9.0}},
        {"participants": ["a"] * 4, "train": {"train-seconds": 4.0}, "seconds": {"total": 11.0}},
    ]
    # 5 clients train 15 seconds and 4 train 16; 2 actors have 18 and 22.
    assert training_share(rounds, actors=2) == 31 / 40
    with pytest.raises(ValueError, match="at least 2"):
        training_share(rounds[:1], actors=2)


def test_the_table_says_which_targets_are_met() -> None:
    lines = [
        Line("a", "met", 0.9, Target("at least", 0.9), {"app samples/s": 1234.4}),
        Line("c", "missed", 1.21, Target("at most", 1.2)),
        Line("d", "no target", 0.5),
    ]
    assert markdown(lines, {"cores": "2"}).splitlines()[2:] == [
        "| part | ratio | measured | target | met | behind it |",
        "|---|---|---|---|---|---|",
        "| a | met | 0.90 | at least 0.90 | yes | app samples/s: 1,234 |",
        "| c | missed | 1.21 | at most 1.20 | **no** |  |",
        "| d | no target | 0.50 |  |  |  |",
    ]

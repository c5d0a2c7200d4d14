"""Bad input ends the command with 2 and a reason, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.research.reproduce.cell_process import Places, actors_of
from scripts.moonflower.research.reproduce.cells import Request
from scripts.moonflower.research.reproduce.reproduction import Session
from scripts.moonflower.research.reproduce.table_file import read_table
from tests.scripts.research.reproduce.tables import cells


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run that is started after all an error."""

    def start(*_args: object, **_kwargs: object) -> int:
        raise AssertionError("a run was started")

    monkeypatch.setattr("scripts.moonflower.research.reproduce.reproduction.Session.run", start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which table? There are fedgen-head-only, fedgen-mnist"),
        (["table-9"], "table 'table-9': there is no file"),
        (["no/such.toml"], "there is no file no/such.toml"),
        (["fedgen-mnist", "--scale", "small"], "--scale 'small': this table has paper"),
        (["fedgen-mnist", "--seeds", "one"], "--seeds 'one'"),
        (["fedgen-mnist", "--rounds", "0"], "num-rounds"),
        (["fedgen-mnist", "--only", "moon"], "--only 'moon' is no cell of this table"),
        (["fedgen-mnist", "--data-dir", "EMPTY"], "data set 'mnist' was looked for in EMPTY"),
        (["fedgen-mnist", "--data-dir", "EMPTY"], "--download to fetch it"),
        (["fedgen-mnist", "--output", "/dev/null/x"], "nothing can be written to /dev/null/x"),
        (["fedgen-mnist", "--gpus-per-client", "3"], "torch sees 2 CUDA devices"),
    ],
)
def test_each_problem_has_a_message_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    empty = str(tmp_path / "none")
    arguments = [empty if argument == "EMPTY" else argument for argument in arguments]
    if "--output" not in arguments:
        arguments += ["--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 2, result.output
    assert message.replace("EMPTY", empty) in result.stderr


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("title = 3\n")
    result = CliRunner().invoke(app, ["reproduce", str(tmp_path / "mine.toml")])
    assert result.exit_code == 2
    assert "mine.toml is no table" in result.stderr


def test_a_table_holds_every_seed_that_was_run(tmp_path: Path) -> None:
    chosen = "fedgen-mnist.fedgen-official.0.1.seed-{}"
    (tmp_path / "runs" / chosen.format(9)).mkdir(parents=True)
    asked = Request("fedgen-mnist", read_table("fedgen-mnist"), "paper", [3])
    session = Session.of(asked, ["fedgen-official/0.1"], Places(tmp_path, None), 1, 0.0)
    assert [cell.experiment for cell in session.chosen] == [chosen.format(3)]
    assert {cell.seed for cell in session.cells} == set(session.request.seeds) == {3, 9}


def test_the_tables_are_listed() -> None:
    result = CliRunner().invoke(app, ["reproduce", "--list"])
    assert result.exit_code == 0
    assert "moon-cifar10: MOON on CIFAR-10" in result.stdout.splitlines()


def test_the_cells_of_a_table_are_listed_with_where_they_are(tmp_path: Path) -> None:
    arguments = ["fedgen-mnist", "--list", "--seeds", "4", "--only", "fedgen-official/0.1"]
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--output", str(tmp_path)])
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    assert line.split() == [
        "fedgen-official/0.1",
        "seed",
        "4",
        "20",
        "clients",
        "0",
        "of",
        "200",
        "rounds",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("jobs", "actors"), [(1, 8), (2, 4), (3, 2), (8, 1), (20, 1)])
def test_jobs_share_the_cores(jobs: int, actors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cells()[0]
    monkeypatch.setattr(
        "scripts.moonflower.research.reproduce.cell_process.default_actors",
        lambda clients, threads: 8,
    )
    assert actors_of(cell, jobs) == actors

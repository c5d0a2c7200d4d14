"""Bad input ends the command before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.config import SettingsError
from scripts.moonflower import flwr
from scripts.moonflower.commands import app
from scripts.moonflower.session import _move_to_end
from scripts.moonflower.simulated_superlink import environment
from scripts.moonflower.simulation import Machine, check_gpus


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make a run that is started after all an error."""
    for folder in ("output", "state"):
        monkeypatch.setenv(f"MOONFLOWER_{folder.upper()}_DIR", str(tmp_path / "made" / folder))

    def start(*_args: object, **_kwargs: object) -> int:
        raise AssertionError("a run was started")

    monkeypatch.setattr("scripts.moonflower.session.run", start)


def test_all_problems_are_listed_at_once_and_the_exit_code_is_2() -> None:
    arguments = ["--algorithm", "magic", "--rounds", "0", "-c", "moon.mu=high", "-c", "moon.nu=1"]
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2
    assert "4 problems" in result.stderr
    for key in ("algorithm", "num-rounds", "moon.mu", "moon.nu"):
        assert f"\n  {key}: " in result.stderr
    assert "allowed are fedavg, fedprox, " in result.stderr
    assert "given was 'high'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "missing"], "preset 'missing'"),
        (["-c", "moon.mu"], "key=value"),
        (["-c", "model.name=magic"], "model.name: Input should be 'char-lstm'"),
        (["--experiment", "../up"], "folder name"),
        (["--clients", "3", "-c", "server.min-clients=4"], "never come"),
        (["--output-dir", "/dev/null/x"], "nothing can be written to /dev/null/x"),
        (["--output-dir", "OUT", "--state-dir", "/dev/null"], "nothing can be written to /dev/nu"),
        (["--output-dir", "~nobody-of-this-name/x"], "Give a path without '~'"),
        (["--gpus-per-client", "nan"], "is nan, but torch sees 2 CUDA devices"),
        (["--gpus-per-client", "3"], "is 3, but torch sees 2 CUDA devices"),
        (["--gpus-per-client", "1.5"], "or whole ones"),
        (["-c", "train.precision=float16"], "needs a GPU, this client trains on cpu"),
    ],
)
def test_each_problem_has_a_message_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    arguments = [str(tmp_path) if argument == "OUT" else argument for argument in arguments]
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def refused_gpus(*parts: float) -> list[float]:
    """Return those of ``parts`` that are refused."""
    refused = []
    for part in parts:
        try:
            check_gpus(part)
        except SettingsError:
            refused.append(part)
    return refused


def test_parts_of_gpus_that_ray_can_give_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert refused_gpus(0.0, 0.25, 1.0, 1.5, 2.0, 3.0) == [1.5, 3.0]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert refused_gpus(0.0, 0.25) == [0.25]


def test_an_experiment_that_exists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    arguments = ["simulate", "--experiment", "mine", "--output-dir", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "'mine' exists already" in result.stderr


def test_an_experiment_that_exists_may_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.moonflower.session.run", lambda *_args, **_kwargs: 0)
    (tmp_path / "mine").mkdir()
    arguments = ["simulate", "--experiment", "mine", "--output-dir", str(tmp_path)]
    assert CliRunner().invoke(app, [*arguments, "-c", "resume=true"]).exit_code == 0


def test_the_log_of_a_resumed_run_comes_after_the_first_one(tmp_path: Path) -> None:
    for text in ("first\n", "second\n"):
        (tmp_path / "mine.log").write_text(text)
        _move_to_end(tmp_path / "mine.log", tmp_path / "run.log")
    assert (tmp_path / "run.log").read_text() == "first\nsecond\n"
    assert not (tmp_path / "mine.log").exists()


def test_what_is_started_knows_its_folders_and_reports_nothing_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    machine = Machine({"MOONFLOWER_OUTPUT_DIR": tmp_path / "out"}, actors=1)
    env = environment(tmp_path, machine.variables())
    assert env["MOONFLOWER_OUTPUT_DIR"] == str(tmp_path / "out")
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert env["FLWR_TELEMETRY_ENABLED"] == env["RAY_USAGE_STATS_ENABLED"] == "0"
    assert Path(env["FLWR_HOME"]).is_relative_to(tmp_path)
    assert "RAY_ADDRESS" not in env


def test_a_run_without_gpus_for_its_clients_uses_none_for_its_server_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Machine({}, actors=1).variables() == {"MOONFLOWER_DEVICE": "cpu"}
    assert Machine({}, actors=1, gpus_per_client=0.5).variables() == {}
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cuda:1")
    assert Machine({}, actors=1).variables() == {"MOONFLOWER_DEVICE": "cuda:1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'Using SuperLink: x\n{"success": true, "runs": [{"status": "finished:failed", '
            '"status-details": "why"}]}',
            ("finished:failed", "why"),
        ),
        ("Error: no connection", ("unknown", "")),
        ('{"success": true, "runs": []}', ("unknown", "")),
    ],
)
def test_the_outcome_is_read_from_what_flwr_lists(text: str, expected: tuple[str, str]) -> None:
    assert flwr.read_outcome(text) == expected

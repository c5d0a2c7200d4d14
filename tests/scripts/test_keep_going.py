"""A run is submitted again when that can help, and only then."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.keep_going import Limits, keep_going
from scripts.moonflower.submission import Submission, SubmissionError
from server_app.errors import NOTHING_TO_RESUME, PERMANENT

# Plays a script, one answer per call of `run` and `list`; the last one is repeated.
FAKE = """
import json, sys, pathlib, tomllib
folder = pathlib.Path({folder!r})
script = json.loads((folder / "script.json").read_text())
command = sys.argv[1]
calls = folder / f"{{command}}.calls"
number = len(calls.read_text().splitlines()) if calls.exists() else 0
note = " ".join(sys.argv[2:])
if command == "run":
    file = pathlib.Path(sys.argv[sys.argv.index("--run-config") + 1])
    note = json.dumps(tomllib.loads(file.read_text()))
with calls.open("a") as file:
    file.write(note + "\\n")
answers = script[command]
print(answers[min(number, len(answers) - 1)])
"""

AWAY = json.dumps(
    {"success": False, "error-message": "Connection to the SuperLink is unavailable. Please check"}
)
UNKNOWN = json.dumps({"success": False, "error-message": "Run ID not found."})


def started(run_id: int) -> str:
    """Return what `flwr run` prints, with words around it."""
    return "Building\n" + json.dumps({"success": True, "run-id": str(run_id)})


def run_is(status: str, details: str = "") -> str:
    """Return what `flwr list` prints."""
    return json.dumps({"success": True, "runs": [{"status": status, "status-details": details}]})


DONE = run_is("finished:completed")
KILLED = run_is("finished:failed", "Task failed with unknown error.")
RUNNING = run_is("running")


class Play:
    """A fake `flwr` and what came of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.shown: list[str] = []
        self.naps: list[float] = []
        program = folder / "bin" / "flwr"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n" + FAKE.format(folder=str(folder)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "FLWR_HOME": str(folder / "home")}
        self.flower = Submission(folder, "here", env=env)

    def __call__(
        self,
        runs: list[str],
        lists: list[str],
        log: str = "nothing",
        restarts: int = 3,
        **overrides: Any,
    ) -> int:
        script = {"run": runs, "list": lists, "log": [log]}
        (self.folder / "script.json").write_text(json.dumps(script))
        return keep_going(
            self.flower,
            {"experiment": "exp", **overrides},
            Limits(restarts, first_delay=5.0, longest_delay=15.0),
            self.shown.append,
            self.said.append,
            self.naps.append,
        )

    @property
    def submitted(self) -> list[bool]:
        """Whether each submission asked to resume."""
        lines = (self.folder / "run.calls").read_text().splitlines()
        assert all(json.loads(line)["experiment"] == "exp" for line in lines)
        return [json.loads(line)["resume"] for line in lines]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a play whose `flwr` is a script."""
    return Play(tmp_path)


def test_a_run_that_completes_is_submitted_once(play: Play) -> None:
    assert play([started(1)], [RUNNING, RUNNING, DONE], log="moonflower INFO round 1/2") == 0
    assert play.submitted == [False]
    assert play.shown == ["moonflower INFO round 1/2"]
    assert "run 1 of experiment exp" in play.said[0]


def test_a_killed_server_app_is_followed_by_a_resumed_run(play: Play) -> None:
    assert play([started(1), started(2)], [RUNNING, KILLED, DONE]) == 0
    assert play.submitted == [False, True]
    assert any("Task failed with unknown error" in line for line in play.said)


def test_a_run_that_a_new_superlink_does_not_know_is_submitted_again(play: Play) -> None:
    assert play([started(1), started(2)], [RUNNING, AWAY, UNKNOWN, DONE]) == 0
    assert play.submitted == [False, True]


def test_a_superlink_that_comes_back_with_its_run_is_only_watched(play: Play) -> None:
    assert play([started(1)], [RUNNING, AWAY, AWAY, RUNNING, DONE], log="once") == 0
    assert play.submitted == [False]
    assert play.shown == ["once"]


def test_settings_that_are_refused_end_it_at_once(play: Play) -> None:
    refused = run_is("finished:failed", f"ServerApp failed with exception: moon.mu\n{PERMANENT}")
    assert play([started(1)], [refused]) == 1
    assert play.submitted == [False]
    assert any("moon.mu" in line for line in play.said)


def test_a_run_that_a_person_stopped_stays_stopped(play: Play) -> None:
    assert play([started(1)], [RUNNING, run_is("finished:stopped")]) == 1
    assert play.submitted == [False]


def test_what_flwr_itself_refuses_is_not_tried_again(play: Play) -> None:
    text = json.dumps({"success": False, "error-message": "Invalid run configuration."})
    assert play([text], [DONE]) == 1
    assert play.submitted == [False]
    with pytest.raises(SubmissionError, match="Invalid run") as caught:
        play.flower.submit({"experiment": "exp", "resume": False})
    assert not caught.value.mendable


def test_a_run_that_died_before_it_began_begins(play: Play) -> None:
    nothing = run_is("finished:failed", f"{NOTHING_TO_RESUME} no experiment\n{PERMANENT}")
    assert play([started(1)], [KILLED, nothing, DONE]) == 0
    assert play.submitted == [False, True, False]
    assert play.naps == [5.0], "the second try is no fault of the run's"


def test_resuming_what_is_not_there_is_refused_when_a_person_asked_for_it(play: Play) -> None:
    nothing = run_is("finished:failed", f"{NOTHING_TO_RESUME} no experiment\n{PERMANENT}")
    assert play([started(1)], [nothing], resume=True) == 1
    assert play.submitted == [True]


def test_the_delay_doubles_up_to_a_limit_and_tries_are_counted(play: Play) -> None:
    assert play([AWAY], [DONE], restarts=4) == 1
    assert play.naps == [5.0, 10.0, 15.0, 15.0]
    assert play.submitted == [False, True, True, True, True]
    assert "after 4 more tries in a row" in play.said[-1]


def test_finished_rounds_start_the_count_anew(play: Play) -> None:
    lists = [KILLED, KILLED, KILLED, KILLED, KILLED, DONE]
    assert play([started(1)], lists, log="moonflower INFO round  3/20  loss 1", restarts=1) == 0
    assert play.naps == [5.0] * 5


def test_what_has_ended_the_run_twice_is_not_tried_a_third_time(play: Play) -> None:
    ends = [run_is("finished:failed", f"no reply within {seconds} s") for seconds in (30, 32)]
    assert play([started(1)], ends, restarts=10) == 1
    assert play.submitted == [False, True]
    assert play.said[-1] == "not tried again, since it ended the run twice: no reply within 32 s"


def test_another_cause_each_time_is_tried_again_up_to_the_limit(play: Play) -> None:
    ends = [run_is("finished:failed", f"cause {letter}") for letter in "abab"]
    assert play([started(1)], ends, restarts=3) == 1
    assert len(play.submitted) == 4


def test_a_superlink_that_is_away_between_two_tries_hides_no_cause(play: Play) -> None:
    assert play([started(1), AWAY, started(2)], [KILLED], restarts=10) == 1
    assert len(play.submitted) == 3


def test_without_keep_going_one_failure_is_the_end(play: Play) -> None:
    assert play([started(1)], [KILLED], restarts=0) == 1
    assert play.submitted == [False]
    assert play.said[-1].startswith("the run failed: Task failed")


def test_a_superlink_that_never_answers_is_given_up(play: Play) -> None:
    assert play([started(1), AWAY], [AWAY], restarts=2) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["-c", "moon.mu=high"], "moon.mu"), (["--resume"], "needs the name of an experiment")],
)
def test_bad_settings_are_refused_before_anything_is_submitted(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("scripts.moonflower.keep_going.keep_going")
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr

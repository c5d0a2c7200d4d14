"""A run is shown in the terminal until it is over."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from scripts.moonflower.experiments.experiment import NotAnExperimentError, State, read_experiment
from scripts.moonflower.pages.watch import seconds_left, watch
from server_app.experiment.resume import locked
from tests.scripts.experiments.written import line_of, write_experiment


def console(*, terminal: bool = False) -> Console:
    """Return a console that keeps what it is given."""
    return Console(file=io.StringIO(), width=100, force_terminal=terminal)


def text_of(shown: Console) -> str:
    """Return what a console was given."""
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_is_followed_from_before_it_begins_to_its_end(tmp_path: Path, terminal: bool) -> None:
    folder, shown, held = tmp_path / "trial", console(terminal=terminal), ExitStack()
    looks = iter(range(10))

    def sleep(_seconds: float) -> None:
        match next(looks):
            case 0:
                write_experiment(folder, [line_of(1)], finished=False)
                held.enter_context(locked(folder))
            case 1:
                with (folder / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps(line_of(2)) + "\n")
            case 2:
                (folder / "final").mkdir()
                (folder / "final" / "model.json").write_text('{"facts": {"round": 2}}')
                held.close()

    assert watch(folder, shown, sleep=sleep) is State.FINISHED
    said = text_of(shown)
    assert "to begin" in said
    # 1 - exp(-1/8), 1 - exp(-2/8)
    assert "0.118" in said
    assert "0.221" in said


def test_one_look_shows_the_clients_with_the_worst_first(tmp_path: Path) -> None:
    shown = console()
    folder = write_experiment(tmp_path / "trial", [line_of(1)], finished=False)
    (folder / "activity.json").write_text('{"round": 2, "clients": ["client-0001"]}')
    with locked(folder):
        assert watch(folder, shown, once=True) is State.RUNNING
    said = text_of(shown)
    assert said.index("client-0000") < said.index("client-0002")
    assert "1 clients online" in said
    # 2.75 s a round, three to go
    assert "about 8.2 s left" in said
    with pytest.raises(NotAnExperimentError, match="absent"):
        watch(tmp_path / "absent", shown, once=True)


def test_the_time_left_is_that_of_the_newest_rounds(tmp_path: Path) -> None:
    lines = [{"round": n, "seconds": {"total": 100.0 if n == 1 else 2.0}} for n in range(1, 12)]
    experiment = read_experiment(write_experiment(tmp_path / "trial", lines))
    assert seconds_left(experiment) == 0.0  # settings say 4 rounds
    assert seconds_left(read_experiment(write_experiment(tmp_path / "none", []))) is None

"""An experiment's folder is read whatever state it is in, and never written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.moonflower.experiments.experiment import (
    Headline,
    NotAnExperimentError,
    State,
    experiment_folders,
    is_locked,
    read_experiment,
    size_of,
)
from scripts.moonflower.experiments.metrics_file import MetricsFile, series
from server_app.experiment.resume import locked
from tests.scripts.experiments.written import facts_of, line_of, write_experiment


def test_a_finished_run_is_read_with_its_rounds_and_headline(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(n) for n in (1, 2, 3, 4)])
    experiment = read_experiment(folder)
    assert (experiment.name, experiment.state) == ("trial", State.FINISHED)
    assert (experiment.rounds, experiment.num_rounds) == (4, 4)
    assert (experiment.algorithm, experiment.settings["moon.mu"]) == ("moon", 1.0)
    assert experiment.headline == Headline("accuracy")
    assert experiment.best == (4, line_of(4)["global"]["accuracy"])
    assert experiment.scores() == [(n, line_of(n)["global"]["accuracy"]) for n in (1, 2, 3, 4)]
    assert experiment.series("train", "loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)]
    assert not experiment.problems


def test_a_run_is_running_while_its_lock_is_held_and_only_then(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1)], finished=False)
    with locked(folder):
        assert is_locked(folder)
        assert read_experiment(folder).state is State.RUNNING
    assert not is_locked(folder)
    assert read_experiment(folder).state is State.STOPPED


def test_looking_at_the_lock_does_not_keep_a_server_out(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "trial", [])
    assert not is_locked(folder)
    with locked(folder, timeout=0):
        pass


def test_a_run_that_died_in_a_round_has_crashed_and_one_that_said_why_has_stopped(
    tmp_path: Path,
) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1)], finished=False)
    (folder / "activity.json").write_text('{"round": 2}')
    assert read_experiment(folder).state is State.CRASHED
    (folder / "activity.json").write_text('{"round": 2, "ended": "round 2 made no model"}')
    experiment = read_experiment(folder)
    assert (experiment.state, experiment.why) == (State.STOPPED, "round 2 made no model")


def test_a_final_model_of_fewer_rounds_than_were_played_does_not_finish_a_run(
    tmp_path: Path,
) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1), line_of(2)])
    (folder / "final" / "model.json").write_text('{"facts": {"round": 1}}')
    assert read_experiment(folder).state is State.STOPPED


def test_a_last_line_that_is_half_written_is_no_error_and_is_read_when_it_is_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    whole, half = (json.dumps(line_of(n)) for n in (1, 2))
    path.write_text(f"{whole}\n{half[:40]}")
    metrics = MetricsFile(path)
    assert metrics.refresh()
    assert ([line["round"] for line in metrics.lines], metrics.problems) == ([1], [])
    with path.open("a") as file:
        file.write(half[40:] + "\n")
    assert metrics.refresh()
    assert [line["round"] for line in metrics.lines] == [1, 2]
    assert not metrics.refresh()


def test_a_file_that_a_resuming_server_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line_of(n)) + "\n" for n in (1, 2, 3)))
    metrics = MetricsFile(path)
    metrics.refresh()
    other = tmp_path / "other"
    other.write_text("".join(json.dumps(line_of(n)) + "\n" for n in (1, 2)))
    os.replace(other, path)  # noqa: PTH105
    assert metrics.refresh()
    assert [line["round"] for line in metrics.lines] == [1, 2]
    path.unlink()
    assert metrics.refresh()
    assert metrics.lines == []


def test_a_damaged_line_is_named_and_the_others_count(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1), line_of(3)])
    path = folder / "metrics.jsonl"
    first, third = path.read_text().splitlines()
    path.write_text(f"{first}\n\0\0\0\n{third}\n[]\n")
    experiment = read_experiment(folder)
    assert [line["round"] for line in experiment.lines] == [1, 3]
    assert list(experiment.problems) == [
        "line 2 of metrics.jsonl is damaged",
        "line 4 of metrics.jsonl is damaged",
    ]


def test_a_round_whose_number_is_not_defined_is_a_gap() -> None:
    lines = [{"round": 1, "train": {"loss": None}}, {"round": 2}, {"round": 3, "train": 5}]
    assert series(lines, "train", "loss") == [(1, None)]


def test_damaged_settings_are_named_and_the_rounds_are_read(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1)])
    (folder / "settings.json").write_text("{")
    experiment = read_experiment(folder)
    assert experiment.headline.name == "accuracy"
    assert "settings.json is damaged" in experiment.problems[0]


def test_what_is_no_experiment_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(NotAnExperimentError, match="notes is no experiment"):
        read_experiment(tmp_path / "notes")
    with pytest.raises(NotAnExperimentError, match="there is no experiment 'absent'"):
        read_experiment(tmp_path / "absent")


def test_links_foreign_folders_and_files_are_not_listed(tmp_path: Path) -> None:
    output = tmp_path / "output"
    trial = write_experiment(output / "trial", [])
    (output / "notes").mkdir()
    (output / "run.log").touch()
    elsewhere = write_experiment(tmp_path / "elsewhere", [])
    (output / "link").symlink_to(elsewhere)
    assert experiment_folders(output) == [trial]
    assert experiment_folders(tmp_path / "absent") == []


def test_of_an_error_less_is_better_whether_the_server_says_so_or_the_worst_client_does(
    tmp_path: Path,
) -> None:
    line = line_of(1)
    line["clients"]["worst"] = {"name": "b", "rmse": 3.0}
    line["clients"]["per-client"] = {"a": 1.0, "b": 3.0}
    line["clients"]["mean"] = 2.0
    line["global"] = None
    later = {**line, "round": 2, "clients": {**line["clients"], "mean": 0.5}}
    old = read_experiment(write_experiment(tmp_path / "old", [line, later]))
    assert old.headline == Headline("rmse", more_is_better=False)
    assert old.best == (2, 0.5)
    facts = {**facts_of("new"), "headline": {"name": "rmse", "more-is-better": False}}
    new = read_experiment(write_experiment(tmp_path / "new", [], facts))
    assert new.headline == old.headline
    assert new.best is None


def test_the_size_counts_files_and_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"12345")
    outside = tmp_path / "outside"
    outside.write_bytes(b"1" * 10_000)
    (tmp_path / "folder" / "link").symlink_to(outside)
    assert 5 < size_of(tmp_path / "folder") < 1000


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "mean", "worst", "accuracy", "round"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    keys=st.dictionaries(
        st.sampled_from(["round", "train", "clients", "global", "refused", "alarms"]), ODD
    ),
    facts=st.dictionaries(
        st.sampled_from(["settings", "started", "clients", "resumed", "headline"]), ODD
    ),
)
def test_whatever_stands_in_the_files_nothing_raises(
    tmp_path_factory: pytest.TempPathFactory, keys: dict[str, object], facts: dict[str, object]
) -> None:
    line = {**line_of(1), **keys}
    folder = tmp_path_factory.mktemp("odd") / "trial"
    experiment = read_experiment(write_experiment(folder, [line], facts))
    assert isinstance(experiment.headline.name, str)
    experiment.scores()
    assert experiment.best is None or experiment.best[0] == experiment.rounds
    assert experiment.num_rounds >= 0 or experiment.started

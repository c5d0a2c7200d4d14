"""``moonflower list``, ``clean`` and ``export``: what is there, what could go, what others read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from filelock import FileLock
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

from common.storage import write_tensors
from scripts.moonflower.commands import app
from scripts.moonflower.experiments.cleaning import delete, leftovers
from scripts.moonflower.experiments.listing import age, run_as_json, size
from scripts.moonflower.pages.metrics_route import metrics_route
from tests.server_app.tracking.rounds import line_of, make_experiment, write_rounds


def finish(folder: Path, rounds: int = 3) -> None:
    """Put a final model and checkpoints there."""
    (folder / "final").mkdir()
    (folder / "final" / "model.json").write_text(json.dumps({"facts": {"round": rounds}}))


def checkpoint(folder: Path, name: str = "round-000003") -> Path:
    path = folder / "checkpoints" / name
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"x" * 1000)
    return path


def keep_state(state: Path, experiment: str, client: str, experiment_id: str = "abc") -> Path:
    folder = state / experiment / client
    facts = {"round": "3", "experiment-id": experiment_id}
    write_tensors(folder / "round-000003.safetensors", {"w": torch.zeros(3)}, facts)
    return folder


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Return the output and the state folder: `over` is finished, `half` can be resumed."""
    output, state = tmp_path / "output", tmp_path / "state"
    for name in ("over", "half"):
        checkpoint(make_experiment(output / name))
        keep_state(state, name, "clinic-a")
    finish(output / "over")
    return output, state


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    return done.exit_code, done.output


def test_the_list_says_state_rounds_best_and_size(places: tuple[Path, Path]) -> None:
    code, text = run("list", "--output-dir", places[0], "--json")
    assert code == 0
    listed = {each["name"]: each for each in json.loads(text)["experiments"]}
    assert (listed["over"]["state"], listed["half"]["state"]) == ("finished", "stopped")
    assert (listed["half"]["rounds"], listed["half"]["num-rounds"]) == (3, 5)
    assert listed["over"]["best"] == {"name": "accuracy", "value": 0.8, "round": 1}
    assert listed["over"]["bytes"] > 1000
    code, text = run("list", "--output-dir", places[0])
    assert "finished" in text
    assert "3/5" in text


def test_an_empty_folder_lists_nothing(tmp_path: Path) -> None:
    code, text = run("list", "--output-dir", tmp_path, "--json")
    assert (code, json.loads(text)["experiments"]) == (0, [])


def test_what_a_run_prints_as_json(places: tuple[Path, Path], tmp_path: Path) -> None:
    found = json.loads(run_as_json(places[0] / "half", 1))
    assert (found["completed"], found["exit-code"], found["results"]["rounds"]) == (False, 1, 3)
    assert json.loads(run_as_json(tmp_path / "elsewhere", 0))["results"] is None


def test_only_what_is_over_could_go_and_nothing_goes_without_yes(
    places: tuple[Path, Path],
) -> None:
    output, state = places
    wanted = {output / "over" / "checkpoints", state / "over" / "clinic-a"}
    assert {each.path for each in leftovers(output, state)} == wanted
    code, text = run("clean", "--output-dir", output, "--state-dir", state)
    assert code == 0
    assert "could go" in text
    assert all(path.is_dir() for path in wanted)
    code, text = run("clean", "--yes", "--output-dir", output, "--state-dir", state)
    assert code == 0
    assert not any(path.exists() for path in wanted)
    assert (output / "over" / "final" / "model.json").is_file()
    assert (output / "half" / "checkpoints" / "round-000003").is_dir()
    assert (state / "half" / "clinic-a" / "round-000003.safetensors").is_file()
    assert list(leftovers(output, state)) == []


def test_a_lock_that_somebody_holds_is_respected(places: tuple[Path, Path]) -> None:
    output, state = places
    found = list(leftovers(output, state))
    with FileLock(output / "over" / ".lock"), FileLock(state / "over" / "clinic-a" / ".lock"):
        assert {delete(each) for each in found} == {"left: somebody works there now"}
        assert list(leftovers(output, state)) == []
    assert all(each.path.exists() for each in found)


def test_states_of_another_experiment_of_the_name_stay(places: tuple[Path, Path]) -> None:
    output, state = places
    other = keep_state(state, "over", "clinic-b", "another")
    assert other not in {each.path for each in leftovers(output, state)}


def test_links_are_not_followed(places: tuple[Path, Path], tmp_path: Path) -> None:
    output, state = places
    outside = tmp_path / "outside"
    checkpoint(outside)
    (output / "over" / "checkpoints").rename(tmp_path / "moved")
    (output / "over" / "checkpoints").symlink_to(outside / "checkpoints")
    (state / "over").rename(tmp_path / "states")
    (state / "over").symlink_to(tmp_path / "states")
    assert list(leftovers(output, state)) == []


def test_damaged_files_go_only_beside_whole_ones_and_unfinished_ones_always(
    places: tuple[Path, Path],
) -> None:
    output, state = places
    damaged = checkpoint(output / "half", "round-000002.damaged-1")
    left = output / "half" / ".best.0123abcd.unfinished"
    left.mkdir()
    own = state / "half" / "clinic-a" / "round-000001.safetensors.damaged-2"
    own.write_bytes(b"?")
    alone = output / "alone"
    checkpoint(make_experiment(alone), "round-000003.damaged-1")
    (output / "half" / "mine.unfinished").write_text("somebody's")
    found = {each.path for each in leftovers(output, state)}
    assert found - {output / "over" / "checkpoints", state / "over" / "clinic-a"} == {
        damaged,
        left,
        own,
    }


def test_prepared_data_stay_while_an_unfinished_experiment_uses_their_source(
    places: tuple[Path, Path],
) -> None:
    output, state = places
    prepared = state / "prepared"
    for name in ("digits-train-0123456789abcdef", "mnist-test-0123456789abcdef"):
        (prepared / name).mkdir(parents=True)
    settings = output / "half" / "settings.json"
    facts = json.loads(settings.read_text())
    facts["settings"]["data"] = {"source": "digits"}
    settings.write_text(json.dumps(facts))
    found = [each.path for each in leftovers(output, state) if each.path.parent == prepared]
    assert found == [prepared / "mnist-test-0123456789abcdef"]
    assert list(leftovers(output / "nowhere", state)) == []


def test_csv_and_parquet_have_a_row_for_every_round(tmp_path: Path) -> None:
    folder = make_experiment(tmp_path / "exp")
    write_rounds(folder, [line_of(1), line_of(2, clients=None)])
    assert run("export", folder, "--to", "csv")[0] == 0
    rows = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
    assert [(row["round"], row["train/loss"], row["clients/mean"]) for row in rows] == [
        ("1", "1.0", "0.75"),
        ("2", "0.5", ""),
    ]
    out = tmp_path / "deep" / "numbers.parquet"
    assert run("export", folder, "--to", "parquet", "--out", out)[0] == 0
    table = pq.read_table(out).to_pydict()
    assert (table["round"], table["clients/mean"]) == ([1, 2], [0.75, None])


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    code, text = run("export", "nothing", "--to", "csv", "--output-dir", tmp_path)
    assert code == 2
    assert "nothing" in text
    folder = make_experiment(tmp_path / "exp")
    with FileLock(folder / ".tracking-tensorboard.lock"):
        code, text = run("export", folder, "--to", "tensorboard")
    assert code == 2
    assert "by the run itself" in text


def test_the_dashboard_gives_prometheus_all_experiments_also_when_one_goes_on(
    places: tuple[Path, Path],
) -> None:
    output, _ = places
    client = TestClient(Starlette(routes=[metrics_route(output)]))

    def rounds() -> dict[str, float]:
        text = client.get("/metrics").text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = families["moonflower_round"].samples
        return {sample.labels["experiment"]: sample.value for sample in samples}

    assert rounds() == {"half": 3, "over": 3}
    with (output / "half" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line_of(4)) + "\n")
    assert rounds() == {"half": 4, "over": 3}
    (output / "half" / "metrics.jsonl").unlink()
    write_rounds(output / "half", [line_of(1)])
    write_rounds(output / "odd", [{"round": 1, "seconds": "x"}])
    assert rounds() == {"half": 1, "over": 3}


@pytest.mark.parametrize(
    ("seconds", "shown"), [(40, "40 s"), (130, "2 min"), (7200, "2 h"), (259200, "3 days")]
)
def test_ages_are_said_in_the_largest_unit_that_fits(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


@pytest.mark.parametrize(("number", "shown"), [(0, "0 B"), (999, "999 B"), (1.44e6, "1.4 MB")])
def test_sizes(number: float, shown: str) -> None:
    assert size(number) == shown

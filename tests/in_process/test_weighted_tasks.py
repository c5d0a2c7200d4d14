"""Multi-label, and class weights from the federation's counts, through both apps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from client_app.app import app
from common.data import DataSpec
from common.data.targets import LabelSets
from common.models import load_model
from server_app.app import serve
from tests.in_process.grid import FakeClock, InProcessGrid, run_in_process
from tests.in_process.test_tasks_and_kinds import REGRESSION, lines_of
from tests.settings import make_run_config

SETS = {**REGRESSION, "task.name": "multi-label", "data.num-labels": 3}


def write_sets(folder: Path, site: int, labels: int = 3) -> Path:
    """Write rows of four numbers; label k is there where number k is above 0."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(site)
    for name in ("train", "test"):
        x = random.normal(size=(150, 4)).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=(x[:, :labels] > 0).astype(np.uint8))
    return folder


def run(tmp_path: Path, labels: tuple[int, int, int] = (3, 3, 3), **overrides: Any) -> Path:
    run_config = make_run_config(**{**SETS, "experiment": "exp", **overrides})
    sites = [
        {"client-name": f"site-{n}", "data-dir": str(write_sets(tmp_path / f"{n}", n, count))}
        for n, count in enumerate(labels)
    ]
    home = tmp_path / "moonflower"
    write_sets(home / "data", 9)
    fake = FakeClock()
    with mock.patch.dict(os.environ, {"MOONFLOWER_HOME": str(home)}):
        grid = InProcessGrid(app, sites, run_config, (), fake.clock())
        return serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())


@pytest.mark.parametrize("algorithm", ["fedavg", "moon"])
def test_sets_of_labels_are_learned(algorithm: str, tmp_path: Path) -> None:
    folder = run(tmp_path, algorithm=algorithm, **{"task.class-weights": "1,2,1"})
    last = lines_of(folder)[-1]
    assert last["global"]["auroc"] > 0.8  # guessing has 0.5
    assert len(last["clients"]["auroc-per-label"]) == 3
    assert set(last["clients"]["per-client"]) == {"site-0", "site-1", "site-2"}
    assert last["alarms"] == []
    spec = DataSpec.of(json.loads((folder / "best/model.json").read_text())["data"])
    assert spec.targets == LabelSets(3)


def test_a_site_with_another_number_of_labels_is_left_out_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="moonflower")
    folder = run(tmp_path, (3, 2, 3), **{"server.min-clients": 2, "num-rounds": 1})
    assert lines_of(folder)[0]["participants"] == ["site-0", "site-2"]
    assert "data.num-labels is 3" in caplog.text


def test_weights_of_the_federation_are_those_of_all_clients_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    import common.tasks

    original = common.tasks.class_weights

    def spy(*args: Any) -> Any:
        seen.append(original(*args))
        return seen[-1]

    monkeypatch.setattr(common.tasks, "class_weights", spy)
    short = {"num-rounds": 1, "train.local-epochs": 1, "data.fraction": 0.3, "experiment": "exp"}
    folder = run_in_process({**short, "task.class-weights": "federation"}, 3, tmp_path)
    settings = json.loads((folder / "settings.json").read_text())
    counts = np.sum([each["examples-per-label"] for each in settings["clients"]], axis=0)
    expected = (1 / counts) / (1 / counts).mean()
    used = [weights for weights in seen if weights]
    assert len(used) >= 3  # each client trains with them
    for weights in used:
        assert weights == pytest.approx(expected)
    plain = run_in_process({**short, "experiment": "plain"}, 3, tmp_path / "plain")
    one, other = (load_model(each / "final").state_dict() for each in (folder, plain))
    assert any(not torch.equal(one[name], other[name]) for name in one)

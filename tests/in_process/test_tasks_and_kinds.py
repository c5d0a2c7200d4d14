"""Another task and another kind of data run as the first ones do: regression, and tables.

Three sites hold rows ``x`` (four numbers) and ``y = 2 x_0 - x_1 + 0.5 + noise``; each sees other
rows (one column is shifted by site), and the noise has a standard deviation of 0.1.
"""

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
from common.config import SettingsError
from common.data import DataSpec
from common.data.kinds import Table
from common.data.targets import Numbers
from common.models import load_facts, load_model
from server_app.app import serve
from tests.in_process.grid import FakeClock, InProcessGrid, simulated
from tests.settings import make_run_config, make_settings

NOISE = 0.1
REGRESSION: dict[str, Any] = {
    "task.name": "regression",
    "data.source": "npz",
    "data.kind": "table",
    "data.features": 4,
    "num-rounds": 4,
    "train.local-epochs": 5,
    "train.batch-size": 16,
    "train.learning-rate": 0.01,
    "server.min-clients": 3,
}


def write_rows(folder: Path, site: int, *, labels: bool = False, rows: int = 120) -> Path:
    """Write ``train.npz`` and ``test.npz``; with ``labels``, y is whether it is above 0.5."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(site)
    for name in ("train", "test"):
        x = random.normal(size=(rows, 4)).astype(np.float32)
        x[:, 2] += site
        y = 2 * x[:, 0] - x[:, 1] + 0.5 + NOISE * random.normal(size=rows)
        np.savez(folder / f"{name}.npz", x=x, y=(y > 0.5).astype(np.int64) if labels else y)
    return folder


def run(tmp_path: Path, *, labels: bool = False, **overrides: Any) -> Path:
    """Run three sites, and a server with a test set of its own; return the experiment's folder."""
    run_config = make_run_config(**{**REGRESSION, "experiment": "exp", **overrides})
    configs = [
        {
            "client-name": f"site-{site}",
            "data-dir": str(write_rows(tmp_path / f"site-{site}", site, labels=labels)),
        }
        for site in range(3)
    ]
    home = tmp_path / "moonflower"
    write_rows(home / "data", 1, labels=labels)
    fake = FakeClock()
    with mock.patch.dict(os.environ, {"MOONFLOWER_HOME": str(home)}):
        grid = InProcessGrid(app, configs, run_config, (), fake.clock())
        return serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "moon", "scaffold", "feddyn"])
def test_regression_on_tables_learns_with_every_algorithm_that_needs_no_labels(
    algorithm: str, tmp_path: Path
) -> None:
    plain = {"train.momentum": 0.0, "train.learning-rate": 0.02, "feddyn.alpha": 1.0}
    overrides = plain if algorithm in ("scaffold", "feddyn") else {}
    folder = run(tmp_path, algorithm=algorithm, **overrides)
    lines = lines_of(folder)
    first, last = lines[0], lines[-1]
    # Guessing the mean has an RMSE of sqrt(2^2 + 1^2) = 2.24.
    assert last["global"]["rmse"] < min(first["global"]["rmse"], 0.5)
    assert last["global"]["r2"] > 0.9
    assert last["train"]["squared-error"] < first["train"]["squared-error"]
    assert set(last["clients"]["per-client"]) == {"site-0", "site-1", "site-2"}
    worst = last["clients"]["worst"]
    assert worst["rmse"] == max(last["clients"]["per-client"].values())
    assert last["alarms"] == []


def test_best_is_the_round_with_the_smallest_error_and_can_be_loaded(tmp_path: Path) -> None:
    folder = run(tmp_path, algorithm="moon")
    errors = [line["global"]["rmse"] for line in lines_of(folder)]
    facts = load_facts(folder / "best")
    assert facts["criterion"] == "global rmse"
    assert (facts["round"], facts["rmse"]) == (1 + int(np.argmin(errors)), min(errors))
    model = load_model(folder / "best")
    assert (model.outputs, model(torch.zeros(3, 8)).shape) == (1, (3, 1))
    saved = json.loads((folder / "best/model.json").read_text())["data"]
    spec = DataSpec.of(saved)
    assert spec.targets == Numbers()
    assert spec.kind == Table(4, (), True, True, *statistics_of(spec))
    # Column 2 is shifted by site: by 1 on average, and 0, 1 and 2 have a variance of 2/3.
    mean, std = statistics_of(spec)
    assert mean == pytest.approx([0, 0, 1, 0], abs=0.2)
    assert std == pytest.approx([1, 1, np.sqrt(1 + 2 / 3), 1], abs=0.2)


def statistics_of(spec: DataSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return what a table is standardised by."""
    assert isinstance(spec.kind, Table)
    return spec.kind.mean, spec.kind.std


def test_patience_goes_on_while_the_error_falls_and_ends_when_it_stands_still(
    tmp_path: Path,
) -> None:
    watching = {"server.patience": 2, "server.stop-metric": "clients-worst", "num-rounds": 5}
    slow = {"train.learning-rate": 1e-3, "train.momentum": 0.0, "train.local-epochs": 1}
    falling = run(tmp_path / "falling", algorithm="fedavg", **watching, **slow)
    worst = [line["clients"]["worst"]["rmse"] for line in lines_of(falling)]
    assert worst == sorted(worst, reverse=True)
    assert len(worst) == 5
    # A rate that rounds to no step at all: round 1 stays the best, two more are played.
    still = run(
        tmp_path / "still", algorithm="fedavg", **watching, **{"train.learning-rate": 1e-30}
    )
    assert len(lines_of(still)) == 3


def test_a_resumed_regression_gives_the_bits_of_one_that_was_not_interrupted(
    tmp_path: Path,
) -> None:
    whole = run(tmp_path / "whole", algorithm="moon")
    run(tmp_path / "cut", algorithm="moon", **{"num-rounds": 2})
    resumed = run(tmp_path / "cut", algorithm="moon", resume=True)
    weights = [(each / "final/model.safetensors").read_bytes() for each in (whole, resumed)]
    assert weights[0] == weights[1]
    ends = [lines_of(each)[-1]["global"] for each in (whole, resumed)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("algorithm", ["moon", "moon+fedgen"])
def test_tables_with_class_labels_are_classified(algorithm: str, tmp_path: Path) -> None:
    labelled = {"task.name": "classification", "data.num-classes": 2}
    folder = run(tmp_path, labels=True, algorithm=algorithm, **labelled)
    assert lines_of(folder)[-1]["global"]["accuracy"] > 0.85


def test_in_a_simulation_a_table_is_dealt_out_evenly_and_not_by_labels_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server_app.clients.gather import StartError

    monkeypatch.setenv("MOONFLOWER_HOME", str(tmp_path / "moonflower"))
    write_rows(tmp_path / "moonflower" / "data", 0, rows=90)
    for partition, wrong in (("iid", ""), ("dirichlet", "shares examples by their class labels")):
        named = {"experiment": partition, "data.partition": partition, "algorithm": "fedavg"}
        run_config = make_run_config(**{**REGRESSION, **named, "num-rounds": 1})
        fake = FakeClock()
        grid = InProcessGrid(app, simulated(3), run_config, (), fake.clock())
        context = Context(7, 1, {}, RecordDict(), run_config)
        if wrong:
            with pytest.raises(StartError, match=wrong):
                serve(grid, context, fake.clock())
        else:
            folder = serve(grid, context, fake.clock())
            # 90 rows, a tenth of each share of 30 kept for validation.
            assert lines_of(folder)[0]["train"]["num-examples"] == 81


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            {"algorithm": "moon+fedgen"},
            "algorithm 'fedgen' needs class labels, which task 'regression' doesn't give",
        ),
        ({"data.source": "digits"}, "its targets are class labels, and the task learns numbers"),
        ({"data.num-classes": 3}, "the task learns numbers, not classes"),
        ({"data.features": 0}, "needs data.image-shape"),
        ({"data.image-shape": "1x8x8"}, "data.kind is 'table', not 'image'"),
        ({"data.client-test": "official"}, "shares the test set by class labels"),
        ({"task.name": "classification"}, "at least 2"),
        (
            {"data.source": "folder", "task.name": "classification", "data.num-classes": 2},
            "only source 'npz' has a choice of kinds",
        ),
        (
            {"task.name": "ranking"},
            "task.name: Input should be 'classification', 'regression' or 'multi-label'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_when_settings_are_parsed(
    overrides: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        make_settings(**{**REGRESSION, **overrides})
    if "algorithm" not in overrides:
        make_settings(**REGRESSION)

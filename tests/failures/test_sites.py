"""SuperNodes of sites with data of their own, one of them with data that don't fit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from flwr.app import Context, RecordDict

from client_app.app import app
from server_app.app import serve
from tests.in_process.grid import FakeClock, InProcessGrid, task_identity
from tests.in_process.reference import differences
from tests.in_process.sites import SETTINGS, write_images, write_npz
from tests.real.app_copy import make_app
from tests.real.loopback import Loopback
from tests.settings import make_run_config


@pytest.mark.long
def test_two_sites_train_on_their_own_data_without_the_one_whose_labels_don_t_fit(
    make_federation: Callable[..., Loopback], tmp_path: Path
) -> None:
    sites = {name: tmp_path / name for name in ("clinic-a", "clinic-b", "clinic-c")}
    for name, labels in (("clinic-a", range(6)), ("clinic-b", range(4, 10))):
        write_npz(sites[name], labels)
    write_npz(sites["clinic-c"], range(10))
    images = np.zeros((3, 8, 8), dtype=np.uint8)
    np.savez(sites["clinic-c"] / "train.npz", x=images, y=np.array([1, 10, 2]))
    federation = make_federation(clients=3)
    federation.start_superlink()
    # One is told by its node config, one by its environment alone, as node.env does it.
    for name in ("clinic-a", "clinic-c"):
        config = {"client-name": name, "data-dir": str(sites[name]), "device": "cpu"}
        federation.start_site(name, {**config, "state-dir": str(tmp_path / f"{name}-state")})
    federation.start_site(
        "clinic-b",
        {},
        MOONFLOWER_CLIENT_NAME="clinic-b",
        MOONFLOWER_DATA_DIR=str(sites["clinic-b"]),
        MOONFLOWER_STATE_DIR=str(tmp_path / "clinic-b-state"),
        MOONFLOWER_DEVICE="cpu",
    )
    federation.wait_for_activations(3)
    settings = {**SETTINGS, "server.min-replies": 2, "server.fraction-evaluate": 0.0}
    # One round: what a site remembers between rounds is not different with data of its own.
    settings |= {"server.start-timeout": 240.0, "num-rounds": 1, "experiment": "sites"}
    # Or a busy machine takes the third site for a silent one before it can say what is wrong.
    settings |= {"server.straggler-grace": 600.0}
    run = federation.submit(make_app(tmp_path / "app").folder, settings)
    run.wait()
    assert federation.statuses() == ["finished:completed"], run.log[-6000:]
    assert "1 of 3 clients can't take part" in run.log
    assert "clinic-c" in run.log
    assert "1 labels lie outside 0 to 9, the first is 10 at row 1" in run.log
    assert [line["participants"] for line in run.lines()] == [["clinic-a", "clinic-b"]]
    assert differences(run.final(), alone(settings, sites)) == []


@pytest.mark.long
def test_a_site_that_failed_over_a_name_in_latin_1_serves_the_next_runs_and_may_grow_in_one(
    make_federation: Callable[..., Loopback], tmp_path: Path
) -> None:
    sites = {name: write_images(tmp_path / name, range(10)) for name in ("a", "b", "c")}
    broken = sites["c"] / "train" / "digit-7" / os.fsdecode(b"\xfc.png")
    broken.touch()
    federation = make_federation(clients=3)
    federation.start_superlink()
    for name, folder in sites.items():
        config = {"client-name": name, "data-dir": str(folder), "device": "cpu"}
        federation.start_site(name, {**config, "state-dir": str(tmp_path / f"{name}-state")})
    federation.wait_for_activations(3)
    settings = {**SETTINGS, "data.source": "folder", "server.start-timeout": 240.0}
    # Or a busy machine takes a slow site for a silent one.
    settings |= {"server.straggler-grace": 600.0, "server.min-replies": 2}
    app = make_app(tmp_path / "app").folder
    first = federation.submit(app, {**settings, "num-rounds": 1, "experiment": "first"})
    first.wait()
    assert [line["participants"] for line in first.lines()] == [["a", "b"]], first.log[-6000:]
    assert r"digit-7/\xfc.png can't be read as an image" in first.log
    broken.unlink()
    # Its SuperNode was not restarted, and the run needs it.
    settings |= {"server.min-clients": 3, "num-rounds": 4, "experiment": "second"}
    second = federation.submit(app, settings)
    second.wait_for_round(1)
    for number, image in enumerate(sorted((sites["c"] / "train" / "digit-0").glob("*.png"))):
        shutil.copy(image, sites["c"] / "train" / "digit-1" / f"new-{number}.png")
    second.wait()
    lines = second.lines()
    assert lines[0]["participants"] == lines[-1]["participants"] == ["a", "b", "c"], second.log
    assert sum("c" in line["refused"] for line in lines) == 1
    assert lines[-1]["train"]["num-examples"] > lines[0]["train"]["num-examples"]
    # A run of nodes without a partition that asks for one is told so.
    settings |= {"data.partition": "iid", "experiment": "third"}
    third = federation.submit(app, settings)
    third.wait()
    assert "data.partition can't apply: no client has a partition" in third.log
    assert federation.statuses() == ["finished:failed", *["finished:completed"] * 2]


def alone(settings: dict[str, object], sites: dict[str, Path]) -> dict[str, object]:
    """Return the final model of the two good sites, trained in this process."""
    run_config = make_run_config(**{**settings, "experiment": "reference"})
    configs = [
        {"client-name": name, "data-dir": str(sites[name])} for name in ("clinic-a", "clinic-b")
    ]
    clock = FakeClock().clock()
    with task_identity():
        grid = InProcessGrid(app, configs, run_config, (), clock)
        folder = serve(grid, Context(7, 1, {}, RecordDict(), run_config), clock)
    return dict(safetensors.torch.load_file(folder / "final" / "model.safetensors"))

"""Federated statistics from the sites' answers to the saved model; columns are made by hand.

Site s has 40 rows of two columns: 0 is ``10 s`` plus 0 or 2 by turns; 1 is missing at site 0, and
constant elsewhere. The label is whether column 0 is even larger than that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from client_app.app import app
from common import records
from common.data import Moments, Statistics
from server_app.app import serve
from tests.in_process.grid import FakeClock, InProcessGrid, run_in_process
from tests.settings import make_run_config

SETTINGS: dict[str, Any] = {
    "algorithm": "moon+fedgen",
    "data.source": "npz",
    "data.kind": "table",
    "data.features": 2,
    "data.num-classes": 2,
    "data.client-test": "global",
    "data.validation-fraction": 0.0,
    "num-rounds": 2,
    "train.local-epochs": 1,
    "train.learning-rate": 0.01,
    "fedgen.server-steps": 2,
    "server.min-clients": 2,
    "experiment": "exp",
}


def write_site(folder: Path, site: int, rows: int = 40) -> Path:
    """Write ``train.npz`` and ``test.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    high = np.arange(rows) % 2
    second = np.full(rows, np.nan if site == 0 else 7.0)
    x = np.stack([10.0 * site + 2 * high, second], axis=1).astype(np.float32)
    for name in ("train", "test"):
        np.savez(folder / f"{name}.npz", x=x, y=high)
    return folder


def run(
    tmp_path: Path,
    sites: int = 3,
    client: Callable[[Message, Context], Message] = app,
    **overrides: Any,
) -> tuple[Path, list[Message]]:
    """Return the experiment's folder, and all that the server has sent."""
    run_config = make_run_config(**{**SETTINGS, **overrides})
    configs = [
        {
            "client-name": f"site-{site}",
            "data-dir": str(write_site(tmp_path / f"site-{site}", site)),
        }
        for site in range(sites)
    ]
    fake = FakeClock()
    with mock.patch.dict(os.environ, {"MOONFLOWER_HOME": str(tmp_path / "moonflower")}):
        grid = InProcessGrid(client, configs, run_config, (), fake.clock())
        return serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock()), grid.sent


def statistics_sent(sent: list[Message], kind: str) -> set[Statistics]:
    """Return those in all instructions of one kind."""
    return {
        records.statistics_of(message.content.config_records[records.CONFIG])
        for message in sent
        if message.metadata.message_type == kind
    }


def expected(sites: int) -> Statistics:
    """Return mean and population standard deviation of column 0 over the sites' rows."""
    values = np.array([10.0 * site + 2 * high for site in range(sites) for high in (0, 1)])
    mean, std = np.float32(values.mean()), np.float32(values.std())
    # Column 1 is 7 wherever it is there: without spread.
    return Statistics((float(mean), 7.0), (float(std), 0.0))


def test_every_instruction_and_the_saved_model_hold_what_all_sites_together_have(
    tmp_path: Path,
) -> None:
    folder, sent = run(tmp_path)
    assert statistics_sent(sent, records.TRAIN) == {expected(3)}
    assert statistics_sent(sent, records.EVALUATE) == {expected(3)}
    kind = json.loads((folder / "final/model.json").read_text())["data"]
    assert (kind["mean"], kind["std"]) == (list(expected(3).mean), list(expected(3).std))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [len(line["participants"]) for line in lines] == [3, 3]


def test_a_resumed_experiment_goes_on_with_the_statistics_of_its_start(tmp_path: Path) -> None:
    run(tmp_path, **{"num-rounds": 1})
    folder, sent = run(tmp_path, sites=2, resume=True)
    assert expected(2) != expected(3)
    assert statistics_sent(sent, records.TRAIN) == {expected(3)}
    assert json.loads((folder / "final/model.json").read_text())["data"]["mean"][0] == 11.0


def test_an_experiment_of_before_goes_on_unscaled(tmp_path: Path) -> None:
    with mock.patch("server_app.experiment.tracker.Statistics.of", return_value=Statistics()):
        run(tmp_path, **{"num-rounds": 1})
    folder, sent = run(tmp_path, resume=True)
    assert statistics_sent(sent, records.TRAIN) == {Statistics()}
    assert json.loads((folder / "final/model.json").read_text())["data"]["mean"] == []


def test_a_site_whose_moments_no_values_have_is_left_out_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    def lying(message: Message, context: Context) -> Message:
        reply = app(message, context)
        answer = reply.content.config_records.get(records.CLIENT, ConfigRecord())
        if answer.get(records.CLIENT_NAME) == "site-2":
            answer[records.CLIENT_SUMS] = [1e30, 0.0]
        return reply

    folder, sent = run(tmp_path, client=lying)
    assert statistics_sent(sent, records.TRAIN) == {expected(2)}
    clients = json.loads((folder / "settings.json").read_text())["clients"]
    assert [client["name"] for client in clients] == ["site-0", "site-1"]


@pytest.mark.parametrize("images", [True, False])
def test_a_site_tells_nothing_where_nothing_is_standardised(images: bool, tmp_path: Path) -> None:
    told: list[ConfigRecord] = []

    def listening(message: Message, context: Context) -> Message:
        reply = app(message, context)
        told.extend(reply.content.config_records.values())
        return reply

    if images:
        run_in_process({"num-rounds": 1}, 2, tmp_path, client_app=listening)
    else:
        _, sent = run(tmp_path, client=listening, **{"data.standardise": False, "num-rounds": 1})
        assert statistics_sent(sent, records.TRAIN) == {Statistics()}
    assert told
    keys = (records.CLIENT_PRESENT, records.CLIENT_SUMS, records.CLIENT_SQUARES)
    assert not any(key in record for record in told for key in keys)


def test_moments_are_of_what_is_trained_on_not_of_what_is_validated_on(tmp_path: Path) -> None:
    told: list[Moments] = []

    def listening(message: Message, context: Context) -> Message:
        reply = app(message, context)
        answer = reply.content.config_records.get(records.CLIENT)
        if answer is not None and context.node_config["client-name"] == "site-1":
            told.append(answer)  # type: ignore[arg-type]
        return reply

    half = {"data.client-test": "validation", "data.validation-fraction": 0.5, "num-rounds": 1}
    folder, _ = run(tmp_path, client=listening, **half)
    (answer,) = told
    trained = sum(answer[records.CLIENT_LABELS])  # type: ignore[index]
    # Equal rows stay together: both of the site's two are 20 of 40.
    assert trained == 20
    assert answer[records.CLIENT_PRESENT] == [20, 20]  # type: ignore[index]
    assert (folder / "final").is_dir()

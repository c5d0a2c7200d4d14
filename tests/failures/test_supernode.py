"""A SuperNode is killed, stopped, comes late; all of them are gone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.grid import Fault as ReplyFault
from tests.in_process.grid import never
from tests.in_process.reference import SETTINGS, differences, reference
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback

MakeFederation = Callable[..., Loopback]


def test_a_supernode_killed_while_training_and_restarted_costs_no_round(
    make_federation: MakeFederation,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    pause = Fault("training", "client-0001", 2, "pause")
    federation, app = make_federation(), make_app(tmp_path / "app", [pause])
    federation.start()
    run = federation.submit(app.folder, {**SETTINGS, "experiment": "node-killed"})
    app.wait_for(pause)
    federation.nodes[1].kill()
    federation.start_node(1)
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    assert "client-0001 is gone" in run.log
    assert differences(run.final(), undisturbed) == []


@pytest.mark.long
def test_a_supernode_stopped_past_the_end_of_the_round_joins_again_when_continued(
    make_federation: MakeFederation, tmp_path: Path
) -> None:
    pause = Fault("training", "client-0001", 2, "pause")
    # The other client's reply is half of them: the round then ends after three times as long.
    settings = {
        **SETTINGS,
        "num-rounds": 4,
        "server.min-replies": 1,
        "server.straggler-grace": 1.0,
        "experiment": "node-stopped",
    }
    federation, app = make_federation(), make_app(tmp_path / "app", [pause])
    federation.start()
    run = federation.submit(app.folder, settings)
    app.wait_for(pause)
    federation.nodes[1].signal(signal.SIGSTOP)
    app.release(pause)
    run.wait_for("round 2/4")
    federation.nodes[1].signal(signal.SIGCONT)
    run.wait()
    name, lines = "client-0001", run.lines()
    asked = [n["round"] for n in lines if name in n["refused"] or name in n["missing"]]
    away = [n["round"] for n in lines if name not in n["participants"]]
    away = [number for number in away if number not in asked]
    assert 2 in asked
    assert 4 not in (*asked, *away), "it is back at the latest when its old round is over"
    # Stopped for more than a minute, it counts as gone, and Flower may end its ClientApp when it
    # goes on; else that finishes its training, keeps the result, and its reply is dropped.
    kept = federation.state(1) / "node-stopped" / name
    trained = [number for number in asked if (kept / f"round-{number:06d}.safetensors").exists()]
    expected = reference(
        tmp_path / "reference",
        settings,
        faults=[ReplyFault(1, never, rounds=trained)],
        lost=[(1, number) for number in asked if number not in trained],
        away=[(1, number) for number in away],
    )
    assert differences(run.final(), expected) == []


@pytest.mark.long
def test_a_run_whose_nodes_are_all_gone_goes_on_when_they_are_back(
    make_federation: MakeFederation,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    pauses = [Fault("training", f"client-000{index}", 2, "pause") for index in range(2)]
    federation, app = make_federation(), make_app(tmp_path / "app", pauses)
    federation.start()
    run = federation.submit(app.folder, {**SETTINGS, "experiment": "all-gone"})
    app.wait_for(*pauses)
    for node in federation.nodes.values():
        node.kill()
    run.wait_for("waiting for clients: 0 connected")
    federation.start_node(0)
    federation.start_node(1)
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    assert differences(run.final(), undisturbed) == []


@pytest.mark.long
def test_a_node_that_holds_back_its_replies_is_reminded_and_costs_no_round(
    make_federation: MakeFederation,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    federation, app = make_federation(), make_app(tmp_path / "app")
    federation.start_superlink()
    federation.start_node(0)
    federation.start_node(1, prefix=(sys.executable, "-m", "tests.real.one_behind"))
    federation.wait_for_activations(2)
    run = federation.submit(app.folder, {**SETTINGS, "experiment": "held-back"})
    record_property("seconds", run.wait_for_round(1))
    run.wait()
    assert "client-0001 sends each reply only when the next message comes" in run.log
    assert [len(line["participants"]) for line in run.lines()] == [2, 2, 2]
    assert differences(run.final(), undisturbed) == []


@pytest.mark.long
def test_a_node_that_joins_in_the_middle_takes_part_from_the_next_round_on(
    make_federation: MakeFederation, tmp_path: Path
) -> None:
    pause = Fault("training", "client-0000", 1, "pause")
    settings = {**SETTINGS, "experiment": "joined"}
    federation, app = make_federation(clients=3), make_app(tmp_path / "app", [pause])
    federation.start(0, 1)
    run = federation.submit(app.folder, settings)
    app.wait_for(pause)
    federation.start_node(2)
    federation.wait_for_activations(3)
    app.release(pause)
    run.wait()
    assert [len(line["participants"]) for line in run.lines()] == [2, 3, 3]
    expected = reference(tmp_path / "reference", settings, clients=3, away=[(2, 1)])
    assert differences(run.final(), expected) == []

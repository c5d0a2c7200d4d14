"""A node with a key sends what no honest node sends: the others' run is the same, to the bit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.in_process.grid import Fault, never
from tests.in_process.reference import SETTINGS, differences, reference
from tests.real.loopback import Loopback
from tests.settings import ROOT

HOSTILE, CLIENTS = 2, 3
PLAN = ("array_bomb", "half", "spoof_src", "custom_class")
"""Of rounds 1 to 4: unreadable, never whole, a lie that nobody looks at, unreadable again."""


def start_hostile(federation: Loopback) -> None:
    """Start the third node, and wait until all are there."""
    command = [sys.executable, "-m", "tests.real.hostile_node", federation.address]
    command += [str(federation.state(HOSTILE)), str(HOSTILE), str(CLIENTS), ",".join(PLAN)]
    environment = federation.environment() | {"PYTHONPATH": str(ROOT)}
    federation.nodes[HOSTILE] = federation.group("hostile")
    federation.nodes[HOSTILE].start(command, environment)
    federation.wait_for_activations(CLIENTS)


def test_replies_that_no_honest_node_sends_change_nothing_but_their_own_absence(
    make_federation: Callable[..., Loopback], tmp_path: Path
) -> None:
    settings = {
        **SETTINGS,
        "num-rounds": len(PLAN) + 1,
        "server.min-clients": CLIENTS,
        "server.straggler-grace": 3.0,
        "experiment": "hostile",
    }
    federation = make_federation(CLIENTS)
    federation.start(0, 1)
    start_hostile(federation)
    run = federation.submit(ROOT, settings)
    run.wait()

    bomb, half, spoof, custom, without = run.lines()
    assert "unfold to" in bomb["refused"]["client-0002"]
    assert half["missing"] == ["client-0002"]
    assert spoof["participants"] == ["client-0000", "client-0001", "client-0002"]
    assert "'CustomDataClass'" in custom["refused"]["client-0002"]
    assert [alarm for alarm in custom["alarms"] if alarm.startswith("client-0002 has sent")]
    assert without["excluded"] == ["client-0002"]

    silent = [Fault(HOSTILE, never, rounds={1, 2, 4})]
    expected = reference(
        tmp_path / "reference", settings, clients=CLIENTS, faults=silent, lost=[(HOSTILE, 5)]
    )
    assert differences(run.final(), expected) == []

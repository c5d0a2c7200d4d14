"""A ClientApp is killed in the middle of a round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.grid import Fault as ReplyFault
from tests.in_process.grid import never
from tests.in_process.reference import SETTINGS, differences, reference
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback


@pytest.mark.parametrize("point", ["training", pytest.param("writing", marks=pytest.mark.long)])
def test_a_client_app_killed_once_costs_no_more_than_trying_the_round_again(
    federation: Loopback,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    point: str,
    record_property: Callable[[str, object], None],
) -> None:
    fault = Fault(point, "client-0001", 2, "kill")
    app = make_app(tmp_path, [fault])
    run = federation.submit(app.folder, {**SETTINGS, "experiment": f"killed-while-{point}"})
    app.wait_for(fault)
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    assert "round 2: 1 usable replies" in run.log
    assert differences(run.final(), undisturbed) == []
    state = federation.state(1) / run.experiment.name / "client-0001"
    leftovers = [path.name for path in state.iterdir() if "unfinished" in path.name]
    assert leftovers == []


@pytest.mark.long
def test_a_client_app_killed_while_uploading_costs_its_replies_until_its_supernode_is_restarted(
    make_federation: Callable[..., Loopback],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    # Flower 1.42: the SuperNode waits for ever for the rest of the reply and takes no other
    # message, though it counts as online (supernode/start_client_internal.py, _push_messages).
    name, fault = "client-0001", Fault("uploading", "client-0001", 2, "kill")
    settings = {
        **SETTINGS,
        "server.min-replies": 1,
        "server.straggler-grace": 1.0,
        "experiment": "killed-while-uploading",
    }
    federation, app = make_federation(), make_app(tmp_path / "app", [fault])
    federation.start()
    run = federation.submit(app.folder, settings)
    app.wait_for(fault)
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    without = [line["round"] for line in run.lines() if name not in line["participants"]]
    assert without == [2, 3]
    expected = reference(
        tmp_path / "reference",
        settings,
        faults=[ReplyFault(1, never, rounds=[2])],
        lost=[(1, 3)],
    )
    assert differences(run.final(), expected) == []

"""A ClientApp is killed: the round is run again, and nothing shows in the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.failures.app_copy import Fault, make_app
from tests.failures.federation import Federation
from tests.failures.reference import SETTINGS, differences


@pytest.mark.parametrize("point", ["training", "writing", "uploading"])
def test_a_client_app_killed_once_costs_no_more_than_trying_the_round_again(
    federation: Federation,
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

"""The ServerApp is killed in each phase of a round; the run is resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.reference import SETTINGS, differences
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback

PHASES = ["sending", "waiting", "aggregating", "distilling", "naming-checkpoint"]


@pytest.mark.parametrize(
    "phase",
    ["writing-checkpoint", *(pytest.param(phase, marks=pytest.mark.long) for phase in PHASES)],
)
def test_a_server_app_killed_in_round_2_is_resumed_to_the_same_bits(
    federation: Loopback,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    phase: str,
    record_property: Callable[[str, object], None],
) -> None:
    fault = Fault(phase, "server", 2, "kill")
    app = make_app(tmp_path, [fault])
    settings = {**SETTINGS, "experiment": f"server-killed-{phase}"}
    killed = federation.submit(app.folder, settings)
    app.wait_for(fault)
    # Flower marks the run as failed within a minute; whoever resumes need not wait for that.
    killed.group.kill()

    resumed = federation.submit(app.folder, {**settings, "resume": True})
    record_property("seconds", resumed.wait_for_round(2))
    resumed.wait()
    assert "round 1/3" not in resumed.log, "only the round in progress is run again"
    assert [line["round"] for line in resumed.lines()] == [1, 2, 3]
    assert differences(resumed.final(), undisturbed) == []


@pytest.mark.long
def test_a_run_that_is_kept_going_survives_a_server_app_that_is_killed(
    federation: Loopback,
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    fault = Fault("waiting", "server", 2, "kill")
    app = make_app(tmp_path, [fault])
    run = federation.keep_going(app.folder, {**SETTINGS, "experiment": "kept-going"})
    app.wait_for(fault)
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    assert run.log.count("round 1/3") == 1
    assert differences(run.final(), undisturbed) == []

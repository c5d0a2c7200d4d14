"""The network of a node is cut and healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.reference import SETTINGS, differences
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback
from tests.real.namespaces import Cable
from tests.real.processes import SLOW, wait_until


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Lay a cable, or skip the test."""
    made = Cable()
    try:
        made.lay()
        yield made
    finally:
        made.remove()


@pytest.mark.long
def test_a_cut_and_healed_network_costs_no_round(
    cable: Cable,
    make_federation: Callable[..., Loopback],
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    pause = Fault("training", "client-0001", 2, "pause")
    federation = make_federation(host=cable.host)
    app = make_app(tmp_path / "app", [pause])
    federation.start_superlink()
    federation.start_node(0)
    federation.start_node(1, prefix=cable.machine.prefix)
    federation.wait_for_activations(2)
    run = federation.submit(app.folder, {**SETTINGS, "experiment": "cut"})
    app.wait_for(pause)
    cable.cut()
    app.release(pause)
    # Flower counts a silent node as offline after a minute; then the round is tried again.
    noticed = ("round 2: 1 usable replies", "client-0001 is gone")
    cut = wait_until(
        lambda: any(text in run.log for text in noticed), "the cut in the log", SLOW, run.dump
    )
    cable.heal()
    record_property("seconds", cut + run.wait_for_round(2))
    run.wait()
    assert differences(run.final(), undisturbed) == []

"""The SuperLink is killed and comes back with its database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from tests.failures.app_copy import Fault, make_app
from tests.failures.federation import Federation
from tests.failures.processes import SLOW, wait_until
from tests.failures.reference import SETTINGS, differences


def test_a_run_is_resumed_to_the_same_bits_after_the_superlink_was_killed_and_restarted(
    make_federation: Callable[..., Federation],
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    pause = Fault("training", "client-0001", 2, "pause")
    federation, app = make_federation(), make_app(tmp_path / "app", [pause])
    federation.start()
    settings = {**SETTINGS, "experiment": "superlink-killed"}
    run = federation.submit(app.folder, settings)
    app.wait_for(pause)
    federation.superlink.kill_first()
    app.release(pause)
    wait_until(lambda: not federation.superlink.pids(), "the ServerApp's end", SLOW)
    run.wait()
    federation.start_superlink()

    resumed = federation.submit(app.folder, {**settings, "resume": True})
    record_property("seconds", resumed.wait_for_round(2))
    resumed.wait()
    assert differences(resumed.final(), undisturbed) == []
    assert federation.statuses()[0] == "finished:completed"
    assert all(status.startswith("finished") for status in federation.statuses())

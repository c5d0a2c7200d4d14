"""The SuperLink is killed and comes back with its database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from tests.in_process.reference import SETTINGS, differences
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback
from tests.real.processes import SLOW, wait_until


def test_a_run_that_is_kept_going_survives_a_superlink_that_is_killed_and_restarted(
    make_federation: Callable[..., Loopback],
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    pause = Fault("training", "client-0001", 2, "pause")
    federation, app = make_federation(), make_app(tmp_path / "app", [pause])
    federation.start()
    run = federation.keep_going(app.folder, {**SETTINGS, "experiment": "superlink-killed"})
    app.wait_for(pause)
    federation.superlink.kill_first()
    app.release(pause)
    wait_until(lambda: not federation.superlink.pids(), "the ServerApp's end", SLOW)
    federation.start_superlink()
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    assert run.log.count("round 1/3") == 1
    assert differences(run.final(), undisturbed) == []
    newest, *older = federation.statuses()
    assert newest == "finished:completed"
    assert older
    assert all(status.startswith("finished") for status in older)

"""A disk is full: an error that says so, and nothing that was whole is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.reference import SETTINGS, differences, reference
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback

MakeFederation = Callable[..., Loopback]
FULL = "No space left on device"


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a small disk of memory, or skip the test."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("a small disk needs root, to mount a tmpfs")
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs (a container, perhaps)")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_on_a_client_costs_its_reply_and_no_file(
    make_federation: MakeFederation, tmp_path: Path
) -> None:
    name = "client-0001"
    # The state's new file does not fit in round 2; before round 3 somebody frees the disk.
    faults = [Fault("training", name, 2, "fill"), Fault("arriving", name, 3, "free")]
    settings = {**SETTINGS, "server.min-replies": 1, "experiment": "client-disk-full"}
    federation, app = make_federation(), make_app(tmp_path / "app", faults)
    with small_disk(federation.state(1), megabytes=8):
        federation.start()
        run = federation.submit(app.folder, settings)
        run.wait()
        assert FULL in run.lines()[1]["refused"][name]
        federation.nodes[1].kill()
    lost = reference(tmp_path / "reference", settings, lost=[(1, 2)])
    assert differences(run.final(), lost) == []


def test_a_full_disk_on_the_server_stops_the_run_and_a_resumed_one_gives_the_same_bits(
    make_federation: MakeFederation, undisturbed: dict[str, Tensor], tmp_path: Path
) -> None:
    fault = Fault("aggregating", "server", 2, "fill")
    settings = {**SETTINGS, "experiment": "server-disk-full"}
    federation, app = make_federation(), make_app(tmp_path / "app", [fault])
    with small_disk(federation.output, megabytes=8):
        federation.start()
        run = federation.submit(app.folder, settings)
        run.wait()
        assert app.struck(fault)
        assert FULL in run.log
        assert federation.statuses() == ["finished:failed"]

        (federation.output / "filler").unlink()
        resumed = federation.submit(app.folder, {**settings, "resume": True})
        resumed.wait()
        assert "round 1/3" not in resumed.log
        assert differences(resumed.final(), undisturbed) == []
        federation.close()

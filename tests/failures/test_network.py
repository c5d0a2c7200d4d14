"""The network of a node is cut and healed."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import Tensor

from tests.failures.app_copy import Fault, make_app
from tests.failures.federation import Federation
from tests.failures.reference import SETTINGS, differences

CUT_SECONDS = 75.0
"""Longer than the minute after which Flower counts a silent node as offline."""


@dataclass(frozen=True)
class Cable:
    """A network namespace, joined to this machine by one pair of interfaces."""

    namespace: str
    interface: str
    host: str

    def cut(self) -> None:
        """Take the cable out."""
        _ip("link", "set", self.interface, "down")

    def heal(self) -> None:
        """Put it back."""
        _ip("link", "set", self.interface, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Lay a cable, or skip the test."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("a network namespace needs root and iproute2")
    name = f"mf{secrets.token_hex(3)}"
    subnet = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}"
    made = Cable(name, f"{name}h", f"{subnet}.1")
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespace: {error.stderr!r}")
    try:
        _ip("link", "add", made.interface, "type", "veth", "peer", f"{name}n", "netns", name)
        _ip("addr", "add", f"{made.host}/24", "dev", made.interface)
        _ip("link", "set", made.interface, "up")
        _ip("-n", name, "addr", "add", f"{subnet}.2/24", "dev", f"{name}n")
        _ip("-n", name, "link", "set", f"{name}n", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        # The pair goes with the namespace, once no process is left in it.
        subprocess.run(["ip", "link", "del", made.interface], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.long
def test_a_cut_and_healed_network_costs_no_round(
    cable: Cable,
    make_federation: Callable[..., Federation],
    undisturbed: dict[str, Tensor],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    pause = Fault("training", "client-0001", 2, "pause")
    federation = make_federation(host=cable.host)
    app = make_app(tmp_path / "app", [pause])
    federation.start_superlink()
    federation.start_node(0)
    federation.start_node(1, prefix=("ip", "netns", "exec", cable.namespace))
    federation.wait_for_nodes(2)
    run = federation.submit(app.folder, {**SETTINGS, "experiment": "cut"})
    app.wait_for(pause)
    cable.cut()
    app.release(pause)
    time.sleep(CUT_SECONDS)
    cable.heal()
    record_property("seconds", CUT_SECONDS + run.wait_for_round(2))
    run.wait()
    assert "round 2: 1 usable replies" in run.log or "is gone" in run.log
    assert differences(run.final(), undisturbed) == []

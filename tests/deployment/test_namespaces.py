"""A server and two nodes with addresses of their own, as on a real network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deployment.sites import SETTINGS
from tests.real.deployment import Deployment
from tests.real.namespaces import Machine, Network
from tests.real.run import Run
from tests.settings import ROOT

pytestmark = pytest.mark.long

NODES = ("clinic-a", "clinic-b")


@dataclass(frozen=True)
class Scene:
    """A federation in which a round was run."""

    deployment: Deployment
    server: Machine
    nodes: dict[str, Machine]
    run: Run

    def opened(self, name: str) -> Path:
        """Return the file with the system calls by which a node's processes opened files."""
        return self.deployment.folder / f"{name}.opened"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, sites: dict[str, Path]) -> Iterator[Scene]:
    """Run a round; every file that a node's processes open is noted."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    network = Network(1 + len(NODES))
    deployment: Deployment | None = None
    try:
        network.lay()
        server, *others = network.machines
        machines = dict(zip(NODES, others, strict=True))
        folder = tmp_path_factory.mktemp("namespaces")
        deployment = Deployment(folder, {name: sites[name] for name in NODES}, [server.address])
        deployment.start_server(server.prefix)
        for name, machine in machines.items():
            strace = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=open,openat", "-o")
            deployment.start_node(
                name, prefix=(*machine.prefix, *strace, str(folder / f"{name}.opened"))
            )
        deployment.wait_for_activations(len(NODES))
        settings = {
            **SETTINGS,
            "num-rounds": 1,
            "server.min-clients": len(NODES),
            "server.min-replies": len(NODES),
            "experiment": "namespaces",
        }
        run = deployment.submit(ROOT, settings, server.prefix)
        run.wait()
        yield Scene(deployment, server, machines, run)
    finally:
        if deployment is not None:
            deployment.close()
        network.remove()


def _ask_from(machine: Machine, *arguments: str) -> str:
    done = subprocess.run(
        [*machine.prefix, sys.executable, "-m", "tests.deployment.tricks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_round_was_trained_by_both(scene: Scene) -> None:
    assert [sorted(line["participants"]) for line in scene.run.lines()] == [sorted(NODES)]


def test_a_node_finds_one_open_port_on_the_server(scene: Scene) -> None:
    found = json.loads(_ask_from(scene.nodes["clinic-a"], scene.server.address))
    assert found == [scene.deployment.port]


def test_a_node_finds_no_open_port_on_another_node(scene: Scene) -> None:
    found = json.loads(_ask_from(scene.nodes["clinic-a"], scene.nodes["clinic-b"].address))
    assert found == []


def test_no_path_leads_from_a_node_to_the_other_interfaces(scene: Scene) -> None:
    ca = str(scene.deployment.bundle("clinic-a") / "ca.crt")
    arguments = (scene.server.address, str(scene.deployment.port), ca)
    found = json.loads(_ask_from(scene.nodes["clinic-a"], *arguments))
    assert len(found) > 100
    assert {what: status for what, status in found.items() if status not in (400, 403)} == {}


@pytest.mark.parametrize(("own", "other"), [NODES, NODES[::-1]])
def test_a_node_opens_its_own_files_and_never_those_of_another(
    scene: Scene, sites: dict[str, Path], own: str, other: str
) -> None:
    opened = scene.opened(own).read_text(errors="replace")

    def private(name: str) -> list[Path]:
        deployment = scene.deployment
        return [sites[name], deployment.node_state(name), deployment.bundle(name)]

    assert [folder for folder in private(own) if f'"{folder}/' not in opened] == []
    assert [folder for folder in private(other) if f"{folder}" in opened] == []

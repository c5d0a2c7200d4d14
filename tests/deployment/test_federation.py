"""Three sites and a server on loopback, behind the fence, with TLS and node keys."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from tests.deployment.sites import SETTINGS
from tests.in_process.reference import differences, reference
from tests.real.deployment import Deployment
from tests.settings import ROOT


def test_a_deployment_gives_the_bits_of_the_same_run_in_one_process(
    deployment: Deployment, sites: dict[str, Path], tmp_path: Path
) -> None:
    settings = {**SETTINGS, "experiment": "sites"}
    run = deployment.submit(ROOT, settings)
    run.wait()
    nodes = [
        {"client-name": name, "data-dir": str(folder), "device": "cpu"}
        for name, folder in sites.items()
    ]
    expected = reference(tmp_path, settings, nodes=nodes)
    assert differences(run.final(), expected) == []
    assert [sorted(line["participants"]) for line in run.lines()] == [sorted(sites)] * 2


def test_a_node_killed_with_9_comes_back_by_itself_and_takes_part(
    deployment: Deployment,
    sites: dict[str, Path],
    record_property: Callable[[str, object], None],
) -> None:
    before = deployment.activated()
    node = deployment.nodes["clinic-b"]
    node.signal(signal.SIGKILL, "flower-supernode")
    record_property("seconds", deployment.wait_for_activations(before + 1))
    assert "flower-supernode was killed by signal 9; trying again in" in node.printed()
    run = deployment.submit(ROOT, {**SETTINGS, "num-rounds": 1, "experiment": "after-kill"})
    run.wait()
    assert [sorted(line["participants"]) for line in run.lines()] == [sorted(sites)]


def test_a_node_that_calls_itself_by_anothers_name_is_left_out_and_nobody_else(
    deployment: Deployment, sites: dict[str, Path]
) -> None:
    def restart(name: str, **env: str) -> None:
        before = deployment.activated()
        deployment.nodes[name].signal(signal.SIGTERM)
        deployment.wait_for_end(deployment.nodes[name])
        deployment.start_node(name, env=env)
        deployment.wait_for_activations(before + 1)

    restart("clinic-c", MOONFLOWER_CLIENT_NAME="clinic-a")
    try:
        two = {"server.min-clients": 2, "server.min-replies": 2, "num-rounds": 1}
        run = deployment.submit(ROOT, {**SETTINGS, **two, "experiment": "foreign-name"})
        run.wait()
    finally:
        restart("clinic-c")
    assert [sorted(line["participants"]) for line in run.lines()] == [["clinic-a", "clinic-b"]]
    assert "it calls itself 'clinic-a', but its key is that of 'clinic-c'" in run.log

"""The line between a node and its server fails in every way in which it was seen to fail.

A SuperLink with TLS and node keys, a node as its start script runs it, a faulty line between them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.moonflower.deployment.supernode_process import HEARTBEAT, PATIENCE
from tests.deployment.sites import SETTINGS, write_sites
from tests.in_process.reference import differences, reference
from tests.real.app_copy import Fault, make_app
from tests.real.deployment import Deployment
from tests.real.line import CLOSES, HANGS, Line
from tests.real.processes import SLOW, wait_until
from tests.settings import ROOT

NAME = "clinic-a"
ONE = {**SETTINGS, "server.min-clients": 1, "server.min-replies": 1}
OFFLINE_SECONDS = 75.0
"""Longer than the minute after which Flower counts a silent node as offline."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc: Linux only"),
]

Record = Callable[[str, object], None]


class Site:
    """A node, its server, and the line between them."""

    def __init__(self, folder: Path) -> None:
        self.data = write_sites(folder / "sites")[NAME]
        self.federation = Deployment(folder / "deployment", {NAME: self.data})
        self.line: Line | None = None

    def start(self) -> None:
        """Start the server without its fence, and the node."""
        self.start_superlink()
        self.line = Line(self.federation.superlink_port, self.federation.server)
        self.federation.start_node(NAME, "--superlink", f"localhost:{self.line.port}")
        self.wait_until_online(since=0.0)

    def start_superlink(self) -> None:
        """Start the SuperLink, and wait until it lets the node in."""
        superlink = self.federation.superlink
        before = superlink.printed().count("nodes admitted")
        superlink.start([str(self.federation.server / "start")], self.federation.environment())
        wait_until(
            lambda: superlink.printed().count("nodes admitted") > before,
            "the SuperLink",
            SLOW,
            superlink.printed,
        )

    def fail(self, fault: str | int, seconds: float) -> float:
        """Let the line fail for some time; return how long it took until the node was back."""
        assert self.line is not None
        self.line.fail(fault)
        time.sleep(seconds)
        self.line.heal()
        return self.wait_until_online(time.time())

    def wait_until_online(self, since: float) -> float:
        """Wait until the server has accepted a heartbeat; return how long it took, in seconds."""
        file = self.federation.node_state(NAME) / "flwr" / HEARTBEAT

        def online() -> bool:
            return file.exists() and file.stat().st_mtime > since

        return wait_until(online, "a heartbeat", SLOW, self.printed)

    def printed(self) -> str:
        """Return what the node has printed."""
        return self.federation.nodes[NAME].printed()

    def processes(self) -> list[int]:
        """Return the processes that are called flower-supernode."""
        return self.federation.nodes[NAME].pids("flower-supernode")

    def health(self) -> str:
        """Return what the health check says."""
        env = {
            **os.environ,
            "MOONFLOWER_BUNDLE": str(self.federation.bundle(NAME)),
            "MOONFLOWER_STATE_DIR": str(self.federation.node_state(NAME)),
            "MOONFLOWER_SUPERLINK": f"localhost:{self.line.port if self.line else 0}",
        }
        command = [sys.executable, str(ROOT / "docker" / "health.py"), "node"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout

    def close(self) -> None:
        """End everything."""
        self.federation.close()
        if self.line:
            self.line.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A node that is online; tests leave it so."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (CLOSES, 10.0),
        *(pytest.param(status, 12.0, marks=pytest.mark.long) for status in (500, 429, 503)),
        # Flower's own time limit for an answer is 30 s.
        pytest.param(HANGS, 40.0, marks=pytest.mark.long),
    ],
)
def test_a_short_fault_is_waited_out_by_the_node_that_runs(
    site: Site, fault: str | int, seconds: float, record_property: Record
) -> None:
    before = site.processes()
    record_property("seconds", site.fail(fault, seconds))
    assert site.processes() == before, "no restart, which would cost a round in progress"
    assert site.health() == "healthy\n"


@pytest.mark.parametrize(
    "fault", [500, *(pytest.param(fault, marks=pytest.mark.long) for fault in (429, CLOSES))]
)
def test_a_fault_while_a_reply_is_sent_costs_no_round(
    site: Site, fault: str | int, tmp_path: Path, record_property: Record
) -> None:
    pause = Fault("training", NAME, 2, "pause")
    app = make_app(tmp_path / "app", [pause])
    settings = {**ONE, "experiment": f"reply-{fault}"}
    before = site.processes()
    run = site.federation.submit(app.folder, settings)
    app.wait_for(pause)
    assert site.line is not None
    site.line.fail(fault)
    refused = site.line.accepted
    app.release(pause)
    wait_until(
        lambda: "Sending: train message" in site.printed().rpartition("Received successfully")[2],
        "the reply",
        SLOW,
        site.printed,
    )
    wait_until(lambda: site.line and site.line.accepted > refused + 2, "tries", SLOW, site.printed)
    site.line.heal()
    record_property("seconds", run.wait_for_round(2))
    run.wait()
    assert site.processes() == before
    assert [line["participants"] for line in run.lines()] == [[NAME]] * 2
    nodes = [{"client-name": NAME, "data-dir": str(site.data), "device": "cpu"}]
    assert differences(run.final(), reference(tmp_path, settings, nodes=nodes)) == []


@pytest.mark.long
def test_a_fault_beyond_patience_ends_the_node_which_is_started_again_and_waits_for_the_server(
    site: Site, record_property: Record
) -> None:
    before = site.processes()
    assert site.line is not None
    site.line.fail(500)
    wait_until(lambda: "answers 500" in site.printed(), "the end", SLOW, site.printed)
    said = site.health()
    site.line.heal()
    record_property("seconds", site.wait_until_online(time.time()))
    assert "no heartbeat" in said
    assert site.line.accepted < 10 * PATIENCE, "tried with pauses"
    assert site.processes() != before
    assert "the node was no longer online: " in site.printed()
    assert site.health() == "healthy\n"


@pytest.mark.long
def test_a_server_that_was_away_finds_its_node_back_and_the_node_was_not_restarted(
    site: Site, record_property: Record
) -> None:
    before = site.processes()
    site.federation.superlink.kill()
    time.sleep(OFFLINE_SECONDS)
    assert "no heartbeat" in site.health()
    site.start_superlink()
    record_property("seconds", site.wait_until_online(time.time()))
    assert site.processes() == before


@pytest.mark.long
def test_a_machine_that_was_suspended_is_online_again_without_a_restart(
    site: Site, record_property: Record
) -> None:
    node, before = site.federation.nodes[NAME], site.processes()
    node.signal(signal.SIGSTOP)
    time.sleep(OFFLINE_SECONDS)
    assert "no heartbeat" in site.health()
    node.signal(signal.SIGCONT)
    record_property("seconds", site.wait_until_online(time.time()))
    assert site.processes() == before


@pytest.mark.long
def test_a_node_that_hangs_while_its_server_answers_is_started_again(
    site: Site, record_property: Record
) -> None:
    node, before = site.federation.nodes[NAME], site.processes()
    node.signal(signal.SIGSTOP, "flower-supernode")
    record_property("seconds", site.wait_until_online(time.time()))
    assert site.processes() != before
    assert "the server accepted no heartbeat of this node for 180 s" in site.printed()


@pytest.mark.long
def test_a_node_that_waits_for_the_rest_of_a_reply_is_started_again(
    site: Site, tmp_path: Path, record_property: Record
) -> None:
    # Its ClientApp is killed while it hands the reply over; flwr 1.42 then waits for ever, online.
    kill = Fault("uploading", NAME, 2, "kill")
    app = make_app(tmp_path / "app", [kill])
    before = site.processes()
    run = site.federation.submit(app.folder, {**ONE, "experiment": "half"})
    app.wait_for(kill)
    killed = time.time()
    wait_until(lambda: "asked for nothing" in site.printed(), "the end", SLOW, site.printed)
    site.wait_until_online(time.time())
    record_property("seconds", time.time() - killed)
    assert site.processes() != before
    # No other site is there to go on with the round: what it waited for is lost twice.
    run.wait()


def test_after_all_of_it_the_node_takes_part(site: Site) -> None:
    run = site.federation.submit(ROOT, {**ONE, "num-rounds": 1, "experiment": "after-all"})
    run.wait()
    assert [line["participants"] for line in run.lines()] == [[NAME]]

"""A site whose only way out is a proxy, and a server whose name only that proxy knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.sites import SETTINGS
from tests.real.deployment import Deployment
from tests.scripts.proxies import proxy
from tests.settings import ROOT

NAME = "clinic-a"
SERVER = "fence.test:9443"


@pytest.fixture
def behind(sites: dict[str, Path], tmp_path: Path) -> Iterator[Deployment]:
    """A server of that name, and one site; nothing is started yet."""
    made = Deployment(tmp_path, {NAME: sites[NAME]}, hosts=["fence.test"])
    try:
        yield made
    finally:
        made.close()


def test_a_node_trains_through_its_proxy_and_asks_it_for_nothing_but_the_server(
    behind: Deployment,
) -> None:
    behind.start_server()
    with proxy({"fence.test": behind.port}) as way:
        variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), way.url)
        node = behind.start_node(
            NAME, "--superlink", SERVER, env={**variables, "NO_PROXY": "intern.test"}
        )
        behind.wait_for_activations(1)
        settings = {**SETTINGS, "server.min-clients": 1, "server.min-replies": 1}
        run = behind.submit(ROOT, {**settings, "num-rounds": 1, "experiment": "proxy"})
        run.wait()
        behind.wait_for(node, "Sent successfully")
        assert [line["participants"] for line in run.lines()] == [[NAME]]
        assert set(way.asked) == {f"CONNECT {SERVER}"}

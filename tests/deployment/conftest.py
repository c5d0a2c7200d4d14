"""One federation for the tests that leave it alive."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.sites import write_sites
from tests.real.deployment import Deployment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those with processes slow; skip them where they can't run."""
    for item in items:
        if "tests/deployment" not in item.path.as_posix():
            continue
        item.add_marker(pytest.mark.slow)
        if sys.platform != "linux":
            item.add_marker(pytest.mark.skip(reason="finds processes by /proc: Linux only"))
        if not (shutil.which("nginx") or Path("/usr/sbin/nginx").exists()):
            reason = "nginx is not installed (apt-get install nginx-light)"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of three sites' examples, by name."""
    return write_sites(tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="package")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, sites: dict[str, Path]
) -> Iterator[Deployment]:
    """A server with its fence and three nodes, online."""
    made = Deployment(tmp_path_factory.mktemp("deployment"), sites)
    try:
        made.start()
        yield made
    finally:
        made.close()

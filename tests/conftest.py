"""Fixtures for every tier."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from common import logs

# As in the apps, and before any test: pytest listens to a logger that does not propagate only if
# it finds it so when the test begins.
logs.install()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Say what ``-n auto`` means: tests wait for disks and for other processes half of the time."""
    return min(2 * (os.cpu_count() or 1), 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests of one federation on one worker."""
    if config.getoption("dist") != "load":
        return None
    from tests.workers import ByFederation

    return ByFederation(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Among several workers, begin with what takes longest."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: not item.get_closest_marker("slow"))
        items.sort(key=lambda item: not item.get_closest_marker("long"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a worker send what a test has logged: names of files need not be UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep state, output and prepared data of every test inside its own folder."""
    monkeypatch.setenv("MOONFLOWER_HOME", str(tmp_path / "moonflower"))
    for variable in ("DATA_DIR", "STATE_DIR", "OUTPUT_DIR", "DEVICE", "CLIENT_NAME", "RESIDENT_MB"):
        monkeypatch.delenv(f"MOONFLOWER_{variable}", raising=False)
    torch.set_num_threads(1)
    return tmp_path / "moonflower"


@pytest.fixture
def real_data() -> Path:
    """Return the folder with MNIST and CIFAR-10 as torchvision reads them, or skip."""
    folder = os.environ.get("MOONFLOWER_TEST_DATA")
    if not folder or not (Path(folder) / "MNIST").is_dir():
        pytest.skip("real data are not laid out: set MOONFLOWER_TEST_DATA to a torchvision folder")
    return Path(folder)

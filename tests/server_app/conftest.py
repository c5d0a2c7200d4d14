"""A toy federation: clients that add a constant to every weight."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.in_process.grid import FakeClock, task_identity


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    """Let tests make messages."""
    with task_identity():
        yield


@pytest.fixture
def fake() -> FakeClock:
    """Return a clock that nobody has to wait for."""
    return FakeClock()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Collect moonflower's lines."""
    caplog.set_level(logging.INFO, logger="moonflower")
    return caplog

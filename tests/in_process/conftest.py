"""Fixtures of the in-process tier."""

from __future__ import annotations

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

"""Federations for tests; each is ended whatever happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.reference import CLIENTS, SETTINGS, reference
from tests.real.loopback import Loopback


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those with processes slow; skip them where these can't be found by their mark."""
    for item in items:
        if "tests/failures" not in item.path.as_posix():
            continue
        if {"federation", "make_federation"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            if sys.platform != "linux":
                item.add_marker(pytest.mark.skip(reason="finds processes by /proc: Linux only"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Return the final model of ``SETTINGS`` with two clients and no failure."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return reference(folder, {**SETTINGS, "experiment": "undisturbed"})


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """A SuperLink and two SuperNodes, for the tests of a file, which leave them alive."""
    shared = Loopback(tmp_path_factory.mktemp("federation"), CLIENTS)
    try:
        shared.start()
        yield shared
    finally:
        shared.close()


@pytest.fixture
def make_federation(tmp_path: Path) -> Iterator[Callable[..., Loopback]]:
    """Return a function that makes a federation for this test alone; nothing is started yet."""
    made: list[Loopback] = []

    def make(clients: int = CLIENTS, host: str = "127.0.0.1") -> Loopback:
        made.append(Loopback(tmp_path / f"federation-{len(made)}", clients, host))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.close()

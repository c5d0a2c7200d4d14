"""The faults of this folder strike where they should, whatever has moved in the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.app_copy import CLIENT_POINTS, SERVER_POINTS, Fault, make_app
from tests.settings import ROOT

BEYOND_THE_APP = {"uploading"}
"""In Flower's own process; it has one real test."""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Play three rounds in one process, with a fault that does nothing at every point."""
    places = [(point, "client-0001") for point in CLIENT_POINTS]
    places += [(point, "server") for point in SERVER_POINTS]
    faults = [Fault(point, who, 2, "pass") for point, who in places]
    app = make_app(tmp_path_factory.mktemp("reached"), faults)
    command = [sys.executable, "-m", "tests.real.reached", str(app.folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return app.marks


def test_every_point_is_reached_in_round_2(marks: Path) -> None:
    names = {path.name for path in marks.iterdir()}
    reached = {name.split("-client-0001-")[0].split("-server-2-")[0] for name in names}
    assert reached == {*CLIENT_POINTS, *SERVER_POINTS} - BEYOND_THE_APP

"""A federation's folder, made by the command that a person types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from scripts.moonflower.commands import app

Provision = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the federation will be."""
    return tmp_path / "federation"


@pytest.fixture
def provision(folder: Path, tmp_path: Path) -> Provision:
    """Return a function that runs ``moonflower provision`` on the folder."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["provision", "--output", str(folder), *arguments])

    return run


@pytest.fixture
def made(folder: Path, provision: Provision, tmp_path: Path) -> Path:
    """Return a folder with two names of the server and two nodes."""
    servers = ["--server", "fl.example.org", "--server", "192.0.2.10"]
    state = ["--state", str(tmp_path / "state"), "--superlink-port", "1"]
    result = provision(*servers, "--node", "clinic-a", "--node", "clinic-b", *state)
    assert result.exit_code == 0, result.output
    return folder

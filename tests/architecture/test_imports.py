"""Imports point one way: client_app -> common <- server_app, scripts -> all three."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.imports import ALLOWED, violations
from tests.settings import ROOT


def test_no_import_points_the_wrong_way() -> None:
    assert violations(ROOT) == []


def test_all_packages_are_looked_at() -> None:
    for package in ALLOWED:
        assert list((ROOT / package).rglob("*.py")), package


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("common/a.py", "import server_app.rounds.loop", "common imports server_app.rounds.loop"),
        ("common/a.py", "from client_app import app", "common imports client_app"),
        (
            "client_app/a.py",
            "from server_app.exchange.exchange import Clock",
            "client_app imports server_app",
        ),
        ("server_app/a.py", "def f():\n    import client_app", "server_app imports client_app"),
        (
            "server_app/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from scripts import x",
            "server_app imports scripts",
        ),
        ("server_app/deep/a.py", "from ...client_app import app", "server_app imports client_app"),
        ("server_app/deep/a.py", "from ... import client_app", "server_app imports client_app"),
        ("scripts/a.py", "from tests.settings import ROOT", "scripts imports tests.settings"),
        (
            "client_app/a.py",
            "import importlib\nimportlib.import_module('server_app.app')",
            "client_app imports server_app.app",
        ),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, path: str, source: str, found: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (violation,) = violations(tmp_path)
    assert violation.startswith(f"{path}:")
    assert found in violation


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "server_app/a.py",
            "from common.config import Settings\nimport server_app.exchange.exchange",
        ),
        ("scripts/a.py", "import common, client_app.app\nfrom server_app import loop"),
        ("client_app/terms/a.py", "from . import base\nfrom .base import Term\nimport torch"),
        ("common/a.py", "import commonplace, scripts_of_others"),
    ],
)
def test_a_right_import_is_not(tmp_path: Path, path: str, source: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    assert violations(tmp_path) == []

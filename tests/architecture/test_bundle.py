"""What travels to the nodes is the app and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.settings import ROOT

NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "output", "state", "__pycache__", ".*_cache")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build the bundle in a copy and return the names of its files."""
    folder = tmp_path_factory.mktemp("bundle")
    copy = folder / "moonflower"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    # A file in every folder that has to stay out, so that this test can fail for each.
    for name in ("tests", "scripts", "docker", "docs"):
        (copy / name).mkdir(exist_ok=True)
        (copy / name / "stray.py").touch()
    subprocess.run(
        [Path(sys.executable).with_name("flwr"), "build"],
        cwd=copy,
        env={**os.environ, "FLWR_HOME": str(folder / "home"), "FLWR_DISABLE_UPDATE_CHECK": "1"},
        check=True,
        timeout=120,
    )
    (built,) = copy.glob("*.fab")
    return zipfile.ZipFile(built).namelist()


def test_the_bundle_holds_every_module_of_the_app(bundle: list[str]) -> None:
    for package in ("common", "client_app", "server_app"):
        modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py")}
        assert modules <= set(bundle)


def test_the_bundle_holds_nothing_else_but_readme_and_license(bundle: list[str]) -> None:
    first = {name.partition("/")[0] for name in bundle}
    assert first == {
        "common",
        "client_app",
        "server_app",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        ".info",
    }

"""Flower's command runs in Flower's home: elsewhere a folder may be called like a connection."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from scripts.moonflower import flwr

_FAKE = """#!{python}
import json, os
print(json.dumps({{"cwd": os.getcwd()}}))
"""


def test_a_home_may_be_relative_and_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "flwr"
    program.write_text(_FAKE.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(
        sys, "executable", str(tmp_path / "python")
    )  # beside which flwr is looked for
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    env = flwr.environment({**os.environ, "FLWR_HOME": "home"})
    assert json.loads(flwr.ask(["list"], env, 60.0)) == {"cwd": str(tmp_path / "home")}
    assert env["FLWR_HOME"] == str(tmp_path / "home")

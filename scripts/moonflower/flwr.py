"""The ``flwr`` command: how it is started everywhere, and what it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.moonflower.loopback import without_proxy

CONNECTION = "moonflower"
"""Name of our SuperLinks in the ``config.toml`` of a Flower home."""


def environment(env: Mapping[str, str], home: Path | None = None) -> dict[str, str]:
    """Return ``env`` for Flower's own programs: no telemetry, no installations, no proxy to itself.

    Parameters
    ----------
    env : Mapping[str, str]
    home : Path, optional
        Flower's home; otherwise the one that ``env`` names, ``~/.flwr`` without one. It is made
        absolute, since commands run in it.
    """
    binaries = str(Path(sys.executable).parent)
    return {
        **env,
        "PATH": os.pathsep.join([binaries, env.get("PATH", os.defpath)]),
        "FLWR_HOME": str((home or Path(env.get("FLWR_HOME") or Path.home() / ".flwr")).absolute()),
        # Or every run installs its dependencies (torch, some GB) anew.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",  # a line of progress is shown when it is printed
        "PYTHONIOENCODING": "utf-8",  # whatever the terminal is: this process reads it
        **without_proxy(env),
    }


def start(
    arguments: Sequence[str], env: Mapping[str, str], *, errors: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    """Start ``flwr ARGUMENTS`` and return the process, whose ``stdout`` is read by the caller.

    Parameters
    ----------
    arguments : Sequence[str]
    env : Mapping[str, str]
        From :func:`environment`.
    errors : int
        Where its standard error goes; by default to the same pipe.
    """
    # Where a person is, there may be a folder of the connection's name, such as a clone: Flower
    # would take that for the path of an app, as its older versions wanted one.
    home = Path(env["FLWR_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        ["flwr", *arguments],
        env=dict(env),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches this process only, which ends the rest
    )


def ask(arguments: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
    """Return what ``flwr ARGUMENTS --format json`` prints, or that it took too long."""
    with start([*arguments, "--format", "json"], env, errors=subprocess.PIPE) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
            return printed if answer_in(printed) else printed + errors
        except subprocess.TimeoutExpired:
            process.kill()
            return f"flwr {' '.join(arguments[:2])} timed out after {seconds:.0f} s"
        except BaseException:
            process.kill()  # or leaving the block would wait for its end
            raise


def answer_in(text: str) -> dict[str, Any]:
    """Return the JSON object that ``text`` ends with, or an empty one."""
    try:
        found = json.loads(text[text.find("{") :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_outcome(text: str) -> tuple[str, str]:
    """Return status and details of the one run in ``flwr list --format json``."""
    try:
        run = answer_in(text)["runs"][0]
        return str(run["status"]), str(run["status-details"])
    except (LookupError, TypeError):
        return "unknown", ""

"""What every federation of real processes has: groups of processes, runs, and an end."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from tests.real.processes import SLOW, Group, wait_until
from tests.real.run import Run

Prefix = tuple[str, ...]
"""What goes before a command, such as ``("ip", "netns", "exec", NAME)``."""


class Federation(ABC):
    """A SuperLink and SuperNodes; whatever happens, :meth:`close` ends all of them.

    How they are set up is the subclass's: ``Loopback`` starts Flower's programs as they are,
    ``Deployment`` what ``moonflower provision`` writes for a server and its sites.

    Parameters
    ----------
    folder : Path
        Holds everything: database, logs, results and the states of the clients.
    output : Path
        Where the ServerApp writes its experiments.
    connection : str
        The name of the SuperLink in ``FLWR_HOME``.
    """

    def __init__(self, folder: Path, output: Path, connection: str) -> None:
        self.folder, self.output, self.connection = folder, output, connection
        self._groups: list[Group] = []
        self.superlink = self.group("superlink")
        self.nodes: dict[int | str, Group] = {}

    @abstractmethod
    def start(self) -> None:
        """Start the server and all nodes, and wait until everybody is in."""

    @abstractmethod
    def flower_home(self) -> Path:
        """Return the ``FLWR_HOME`` of the commands that a person types on the server."""

    def group(self, name: str) -> Group:
        """Return a new group of processes, to be ended with the federation."""
        made = Group(f"{name}-{secrets.token_hex(6)}", self.folder / f"{name}.log")
        self._groups.append(made)
        return made

    def environment(self) -> dict[str, str]:
        """Return the environment of a shell in which nothing was set up."""
        # Compiled modules are kept, as on any other machine: every message starts Python anew.
        dropped = ("MOONFLOWER_", "FLWR_", "PYTHONDONTWRITEBYTECODE")
        env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        return env | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "*",
        }

    def activated(self) -> int:
        """Return how many times a node has come online."""
        return self.superlink.printed().count("Activated node_id")

    def wait_for_activations(self, number: int) -> float:
        """Wait until so many times a node has come online."""
        return wait_until(
            lambda: self.activated() >= number, f"{number} activations", SLOW, self._dump
        )

    def wait_for(self, group: Group, text: str, seconds: float = SLOW) -> float:
        """Wait until a process has said ``text``."""
        return wait_until(
            lambda: text in group.printed(), repr(text), seconds, lambda: group.printed()[-3000:]
        )

    def wait_for_end(self, group: Group, seconds: float = SLOW) -> int:
        """Wait until a process has ended, and return its exit code."""
        wait_until(lambda: not group.alive, "the end", seconds, lambda: group.printed()[-3000:])
        assert group.process is not None
        return int(group.process.returncode)

    def submit(self, app: Path, settings: Mapping[str, Any], prefix: Prefix = ()) -> Run:
        """Start ``flwr run``, and follow it.

        Parameters
        ----------
        app : Path
            Moonflower, or a copy of it.
        settings : Mapping[str, Any]
            The experiment's name must be among them.
        prefix : Prefix
        """
        command = ["flwr", "run", str(app), self.connection, "--stream"]
        return self._follow([*prefix, *command], settings)

    def keep_going(self, app: Path, settings: Mapping[str, Any]) -> Run:
        """Start ``moonflower run --keep-going``."""
        command = ["moonflower", "run", self.connection, "--keep-going", "--app", str(app)]
        return self._follow([*command, "--verbose"], settings)

    def submit_other(self, app: Path) -> Run:
        """Start an app that is not Moonflower; of it, only what it prints can be read."""
        group = self.group(f"run-{len(self._groups)}-{app.name}")
        command = ["flwr", "run", str(app), self.connection, "--stream"]
        group.start(command, self.command_environment())
        return Run(group, self.output / app.name)

    def _follow(self, command: list[str], settings: Mapping[str, Any]) -> Run:
        group = self.group(f"run-{len(self._groups)}-{settings['experiment']}")
        toml = group.log.with_suffix(".toml")
        toml.write_text(tomli_w.dumps(dict(settings)), encoding="utf-8")
        group.start([*command, "-c", str(toml)], self.command_environment())
        return Run(group, self.output / str(settings["experiment"]))

    def command_environment(self) -> dict[str, str]:
        """Return the environment of the commands that a person types on the server."""
        return self.environment() | {
            "FLWR_HOME": str(self.flower_home()),
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def statuses(self) -> list[str]:
        """Return the status of every run, newest first, as ``finished:completed``."""
        shown = subprocess.run(
            ["flwr", "list", self.connection, "--format", "json"],
            env=self.command_environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return [str(run["status"]) for run in json.loads(shown[shown.find("{") :])["runs"]]

    def _dump(self) -> str:
        return "\n".join(f"{each.log}:\n{each.printed()[-2000:]}" for each in self._groups)

    def close(self) -> None:
        """Kill every process that was started, those that start others first."""
        for group in reversed(self._groups):
            group.kill()

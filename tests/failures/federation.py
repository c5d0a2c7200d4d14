"""A federation of real processes on loopback: a SuperLink with a database, and SuperNodes."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import tomli_w
from torch import Tensor

from tests.failures.processes import SLOW, Group, wait_until

CONNECTION = "test"


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Run:
    """A ``flwr run --stream`` that follows its run."""

    group: Group
    experiment: Path

    @property
    def log(self) -> str:
        """What the run has printed so far."""
        return self.group.printed()

    def wait_for(self, text: str, seconds: float = SLOW) -> float:
        """Wait until the log has ``text``."""
        return wait_until(lambda: text in self.log, f"{text!r} in the log", seconds, self._dump)

    def wait(self, seconds: float = SLOW) -> float:
        """Wait until the run is over."""
        return wait_until(lambda: not self.group.alive, "the end", seconds, self._dump)

    def wait_for_round(self, server_round: int) -> float:
        """Wait until the round is in ``metrics.jsonl``; return how long it took, in seconds."""
        return wait_until(
            lambda: self._written() >= server_round, f"round {server_round}", SLOW, self._dump
        )

    def _written(self) -> int:
        file = self.experiment / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.is_file() else 0

    def final(self) -> dict[str, Tensor]:
        """Return the final model's tensors."""
        file = self.experiment / "final" / "model.safetensors"
        if not file.is_file():
            raise AssertionError(f"there is no {file}; the log:\n{self.log}")
        return safetensors.torch.load_file(file)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``."""
        file = self.experiment / "metrics.jsonl"
        if not file.is_file():
            raise AssertionError(f"there is no {file}; the log:\n{self.log}")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def _dump(self) -> str:
        return self.log[-6000:]


class Federation:
    """Starts, hurts and ends processes; whatever happens, :meth:`close` ends all of them.

    Parameters
    ----------
    folder : Path
        Holds everything: database, logs, results and the states of the clients.
    clients : int
        Parts of the data set.
    host : str
        Where the SuperLink listens.
    """

    def __init__(self, folder: Path, clients: int, host: str = "127.0.0.1") -> None:
        self.folder, self.clients = folder, clients
        self.output = folder / "output"
        self.address = f"{host}:{free_port()}"
        self.superlink = self._group("superlink")
        self.nodes: dict[int | str, Group] = {}
        self._runs: list[Group] = []
        self._prepare_home()

    def _group(self, name: str) -> Group:
        return Group(f"{name}-{secrets.token_hex(6)}", self.folder / f"{name}.log")

    def _prepare_home(self) -> None:
        home = self.folder / "home"
        home.mkdir(parents=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.address}"\ninsecure = true\n',
            encoding="utf-8",
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of every process."""
        # Compiled modules are kept, as on any other machine: every message starts Python anew.
        dropped = ("MOONFLOWER_", "PYTHONDONTWRITEBYTECODE")
        env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        return env | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]]),
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "*",
            "MOONFLOWER_HOME": str(self.folder),
            "MOONFLOWER_OUTPUT_DIR": str(self.output),
        }

    @property
    def database(self) -> Path:
        """The SuperLink's database."""
        return self.folder / "superlink.sqlite"

    def start(self, *nodes: int) -> None:
        """Start the SuperLink, and the SuperNodes of these partitions (none: all)."""
        self.start_superlink()
        for index in nodes or range(self.clients):
            self.start_node(index)
        self.wait_for_nodes(len(nodes) or self.clients)

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers."""
        host, port = self.address.split(":")
        command = ["flower-superlink", "--insecure", "--host", host, "--port", port]
        before = self.superlink.printed().count("Application startup complete")
        self.superlink.start([*command, "--database", str(self.database)], self.environment())
        wait_until(
            lambda: self.superlink.printed().count("Application startup complete") > before,
            "the SuperLink's start",
            SLOW,
            self.superlink.printed,
        )

    def start_node(self, index: int, prefix: tuple[str, ...] = (), **node_config: str) -> None:
        """Start the SuperNode of a partition; ``prefix`` goes before its command."""
        group = self.nodes.setdefault(index, self._group(f"node-{index}"))
        config = {
            "partition-id": index,
            "num-partitions": self.clients,
            "state-dir": str(self.state(index)),
            "device": "cpu",
        } | {key.replace("_", "-"): value for key, value in node_config.items()}
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        group.start([*prefix, *self._supernode(pairs)], self.environment())

    def start_site(self, name: str, node_config: Mapping[str, str], **environment: str) -> None:
        """Start the SuperNode of a site with data of its own: what it is told is all that it knows.

        Parameters
        ----------
        name : str
            Of its log, and in :attr:`nodes`.
        node_config : Mapping[str, str]
            As ``data-dir``; empty: no ``--node-config`` at all.
        environment : str
            As ``MOONFLOWER_DATA_DIR``.
        """
        group = self.nodes.setdefault(name, self._group(name))
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in node_config.items())
        group.start(self._supernode(pairs), self.environment() | environment)

    def _supernode(self, pairs: str) -> list[str]:
        command = ["flower-supernode", "--insecure", "--superlink", self.address]
        command += ["--port", str(free_port())]
        return [*command, "--node-config", pairs] if pairs else command

    def state(self, index: int) -> Path:
        """Return a client's state folder."""
        return self.folder / f"state-{index}"

    def activated(self) -> int:
        """Return how many times a node has come online."""
        return self.superlink.printed().count("Activated node_id")

    def wait_for_nodes(self, activations: int) -> float:
        """Wait until so many times a node has come online."""
        return wait_until(
            lambda: self.activated() >= activations,
            f"{activations} SuperNodes online",
            SLOW,
            lambda: "\n".join(node.printed()[-2000:] for node in self.nodes.values()),
        )

    def submit(self, app: Path, settings: Mapping[str, Any]) -> Run:
        """Start ``flwr run``; the experiment's name must be among the settings."""
        return self._follow(["flwr", "run", str(app), CONNECTION, "--stream"], settings)

    def keep_going(self, app: Path, settings: Mapping[str, Any]) -> Run:
        """Start ``moonflower run --keep-going``."""
        command = ["moonflower", "run", CONNECTION, "--keep-going", "--app", str(app)]
        return self._follow([*command, "--verbose"], settings)

    def _follow(self, command: list[str], settings: Mapping[str, Any]) -> Run:
        name = f"run-{len(self._runs)}-{settings['experiment']}"
        group = self._group(name)
        toml = self.folder / f"{name}.toml"
        toml.write_text(tomli_w.dumps(dict(settings)), encoding="utf-8")
        group.start([*command, "-c", str(toml)], self.environment())
        self._runs.append(group)
        return Run(group, self.output / str(settings["experiment"]))

    def statuses(self) -> list[str]:
        """Return the status of every run, newest first, as ``finished:completed``."""
        shown = subprocess.run(
            ["flwr", "list", CONNECTION, "--format", "json"],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return [str(run["status"]) for run in json.loads(shown[shown.find("{") :])["runs"]]

    def close(self) -> None:
        """Kill every process that was started."""
        for group in (*self._runs, *self.nodes.values(), self.superlink):
            group.kill()

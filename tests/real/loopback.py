"""Flower's programs as they are: a SuperLink with a database, and SuperNodes without TLS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.real.federation import Federation, Prefix
from tests.real.processes import SLOW, Group, free_port, wait_until

CONNECTION = "test"


class Loopback(Federation):
    """A federation whose parts a test starts, hurts and ends one by one.

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
        super().__init__(folder, folder / "output", CONNECTION)
        self.clients = clients
        self.address = f"{host}:{free_port()}"
        self._prepare_home()

    def _prepare_home(self) -> None:
        self.flower_home().mkdir(parents=True)
        (self.flower_home() / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.address}"\ninsecure = true\n',
            encoding="utf-8",
        )

    def flower_home(self) -> Path:
        """Return the folder that all processes share."""
        return self.folder / "home"

    def environment(self) -> dict[str, str]:
        """Return the environment of every process."""
        return super().environment() | {
            "FLWR_HOME": str(self.flower_home()),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
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
        self.wait_for_activations(len(nodes) or self.clients)

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

    def start_node(self, index: int, prefix: Prefix = (), **node_config: str) -> Group:
        """Start the SuperNode of a partition; ``prefix`` goes before its command."""
        config = {
            "partition-id": index,
            "num-partitions": self.clients,
            "state-dir": str(self.state(index)),
            "device": "cpu",
        } | {key.replace("_", "-"): value for key, value in node_config.items()}
        group = self._node(index, f"node-{index}")
        group.start([*prefix, *self._supernode(config)], self.environment())
        return group

    def start_site(self, name: str, node_config: Mapping[str, str], **environment: str) -> Group:
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
        group = self._node(name, name)
        group.start(self._supernode(node_config), self.environment() | environment)
        return group

    def _node(self, key: int | str, name: str) -> Group:
        if key not in self.nodes:
            self.nodes[key] = self.group(name)
        return self.nodes[key]

    def _supernode(self, config: Mapping[str, object]) -> list[str]:
        command = ["flower-supernode", "--insecure", "--superlink", self.address]
        command += ["--port", str(free_port())]
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        return [*command, "--node-config", pairs] if pairs else command

    def state(self, index: int) -> Path:
        """Return a client's state folder."""
        return self.folder / f"state-{index}"

"""A federation as a person sets it up: provision, copy the bundles, run their start scripts."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scripts.moonflower.flwr import CONNECTION
from tests.real.federation import Federation, Prefix
from tests.real.processes import SLOW, Group, free_port, wait_until
from tests.settings import ROOT


class Deployment(Federation):
    """What the bundles hold: server, fence and nodes, with TLS and node keys.

    Parameters
    ----------
    folder : Path
        Holds everything.
    data : Mapping[str, Path]
        Each node's examples; its keys are the nodes.
    hosts : Iterable[str]
        The server's names and addresses.
    """

    def __init__(
        self, folder: Path, data: Mapping[str, Path], hosts: Iterable[str] = ("localhost",)
    ) -> None:
        self.bundles, self.state = folder / "federation", folder / "state"
        super().__init__(folder, self.state / "output", CONNECTION)
        self.data = data
        self.port, self.superlink_port = free_port(), free_port()
        self.fence = self.group("fence")
        arguments = [f"--server={host}" for host in hosts]
        arguments += [f"--node={name}" for name in data]
        arguments += [f"--port={self.port}", f"--superlink-port={self.superlink_port}"]
        self.provision(*arguments, f"--state={self.state}")
        for name in data:
            self.configure(name)

    def flower_home(self) -> Path:
        """Return the server's folder for Flower."""
        return self.state / "flwr"

    @property
    def server(self) -> Path:
        """The server's bundle."""
        return self.bundles / "server"

    def bundle(self, name: str) -> Path:
        """Return a node's bundle."""
        return self.bundles / "nodes" / name

    def node_state(self, name: str) -> Path:
        """Return a node's state folder."""
        return self.state / "nodes" / name / "state"

    def configure(self, name: str) -> None:
        """Set what a person sets in ``node.env``."""
        file = self.bundle(name) / "node.env"
        lines = [
            line
            for line in file.read_text().splitlines()
            if not line.startswith(("MOONFLOWER_DATA_DIR=", "MOONFLOWER_DEVICE="))
        ]
        lines += [f"MOONFLOWER_DATA_DIR={self.data[name]}", "MOONFLOWER_DEVICE=cpu"]
        file.write_text("\n".join(lines) + "\n")

    def environment(self) -> dict[str, str]:
        """Return the environment of a shell in which nothing was set up."""
        venv = {"MOONFLOWER_VENV": str(Path(sys.executable).parent.parent)}
        return super().environment() | venv

    def provision(self, *arguments: str) -> str:
        """Run ``moonflower provision``, and return what it said."""
        return self.moonflower("provision", "--output", str(self.bundles), *arguments)

    def moonflower(self, *arguments: str) -> str:
        """Run the command, and return what it said."""
        done = subprocess.run(
            ["moonflower", *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self) -> None:
        """Start the server and all nodes, and wait until everybody is in."""
        self.start_server()
        for name in self.data:
            self.start_node(name)
        self.wait_for_activations(len(self.data))

    def start_server(self, prefix: Prefix = ()) -> None:
        """Start SuperLink and fence, and wait until the nodes are registered."""
        self.superlink.start([*prefix, str(self.server / "start")], self.environment())
        fence = [str(ROOT / "scripts" / "fence"), "--bundle", str(self.server)]
        self.fence.start([*prefix, *fence], self.environment())
        wait_until(
            lambda: "nodes admitted" in self.superlink.printed(),
            "the SuperLink",
            SLOW,
            self._dump,
        )

    def start_node(
        self, name: str, *arguments: str, prefix: Prefix = (), env: Mapping[str, str] | None = None
    ) -> Group:
        """Start the SuperNode of a node's bundle."""
        if name not in self.nodes:
            self.nodes[name] = self.group(f"node-{name}")
        group = self.nodes[name]
        command = [*prefix, str(self.bundle(name) / "start"), *arguments]
        group.start(command, self.environment() | dict(env or {}))
        return group

    @contextmanager
    def second_fence(
        self,
        name: str,
        superlink_port: int | None = None,
        pair: tuple[bytes, bytes] | None = None,
    ) -> Iterator[int]:
        """Run another fence, before another server or with another key and certificate.

        Yields its port.
        """
        server, port = self.folder / "copies" / f"{name}-server", free_port()
        shutil.copytree(self.server, server)
        if pair is not None:
            (server / "server.key").write_bytes(pair[0])
            (server / "server.crt").write_bytes(pair[1])
        settings = (server / "nginx.conf").read_text()
        settings = settings.replace(f":{self.port} ssl", f":{port} ssl")
        settings = settings.replace(
            f":{self.superlink_port};", f":{superlink_port or self.superlink_port};"
        )
        (server / "nginx.conf").write_text(settings)
        run = self.state / f"{name}-fence"
        group = self.group(f"{name}-fence")
        command = [str(ROOT / "scripts" / "fence"), "--bundle", str(server)]
        group.start(command, self.environment() | {"MOONFLOWER_FENCE_DIR": str(run)})
        pid = run / "nginx.pid"
        try:
            wait_until(lambda: pid.exists() and pid.read_text(), "the fence", SLOW, group.printed)
            yield port
        finally:
            group.kill()

    def close(self) -> None:
        """End everything, as a person would; what is left after that is killed."""
        for group in self._groups:
            if group.alive and group.process is not None:
                group.process.send_signal(signal.SIGTERM)
        super().close()

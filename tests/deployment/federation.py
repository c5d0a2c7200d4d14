"""A federation as a person sets it up: provision, copy the bundles, run their start scripts."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from scripts.moonflower.deployment.connection import CONNECTION
from tests.failures.federation import Run, free_port
from tests.failures.processes import SLOW, Group, wait_until
from tests.settings import ROOT

Prefix = tuple[str, ...]


class Deployment:
    """Starts what the bundles hold; whatever happens, :meth:`close` ends all of it.

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
        self.folder, self.data = folder, data
        self.bundles, self.state = folder / "federation", folder / "state"
        self.port, self.superlink_port = free_port(), free_port()
        self._groups: list[Group] = []
        self.superlink = self._group("superlink")
        self.fence = self._group("fence")
        self.nodes: dict[str, Group] = {}
        arguments = [f"--server={host}" for host in hosts]
        arguments += [f"--node={name}" for name in data]
        arguments += [f"--port={self.port}", f"--superlink-port={self.superlink_port}"]
        self.provision(*arguments, f"--state={self.state}")
        for name in data:
            self.configure(name)

    def _group(self, name: str) -> Group:
        made = Group(f"{name}-{secrets.token_hex(6)}", self.folder / f"{name}.log")
        self._groups.append(made)
        return made

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
        # Compiled modules are kept, as on any other machine: every message starts Python anew.
        dropped = ("MOONFLOWER_", "FLWR_", "PYTHONDONTWRITEBYTECODE")
        env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        return env | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]]),
            "MOONFLOWER_VENV": str(Path(sys.executable).parent.parent),
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "*",
        }

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
        group = self.nodes.get(name) or self._group(f"node-{name}")
        self.nodes[name] = group
        command = [*prefix, str(self.bundle(name) / "start"), *arguments]
        group.start(command, self.environment() | dict(env or {}))
        return group

    def start_copy(self, name: str, copy: str, **settings: str) -> Group:
        """Start a copy of a node's bundle with other settings and a state folder of its own."""
        target = self.folder / "copies" / copy
        shutil.copytree(self.bundle(name), target)
        group = self._group(copy)
        state = {"MOONFLOWER_STATE_DIR": str(self.state / copy)}
        group.start([str(target / "start")], self.environment() | state | settings)
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
        group = self._group(f"{name}-fence")
        command = [str(ROOT / "scripts" / "fence"), "--bundle", str(server)]
        group.start(command, self.environment() | {"MOONFLOWER_FENCE_DIR": str(run)})
        pid = run / "nginx.pid"
        try:
            wait_until(lambda: pid.exists() and pid.read_text(), "the fence", SLOW, group.printed)
            yield port
        finally:
            group.kill()

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

    def submit(self, settings: Mapping[str, Any], prefix: Prefix = (), app: Path = ROOT) -> Run:
        """Start ``flwr run`` on the server; the experiment's name must be among the settings.

        Of another ``app``, only what it prints can be read.
        """
        name = str(settings["experiment"])
        group = self._group(f"run-{name}")
        toml = self.folder / f"run-{name}.toml"
        toml.write_text(tomli_w.dumps(dict(settings)), encoding="utf-8")
        env = self.environment() | {
            "FLWR_HOME": str(self.state / "flwr"),
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        }
        command = ["flwr", "run", str(app), CONNECTION, "--stream"]
        # An app refuses settings that it does not have.
        command += ["-c", str(toml)] if app == ROOT else []
        group.start([*prefix, *command], env)
        return Run(group, self.state / "output" / name)

    def _dump(self) -> str:
        return "\n".join(f"{each.log}:\n{each.printed()[-2000:]}" for each in self._groups)

    def close(self) -> None:
        """End everything, as a person would; what is left after that is killed."""
        for group in self._groups:
            if group.alive and group.process is not None:
                group.process.send_signal(signal.SIGTERM)
        for group in self._groups:
            group.kill()

"""Machines of their own on one: network namespaces, joined by a bridge (Linux, root)."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from tests.deployment.federation import Prefix


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """A network namespace with an address."""

    namespace: str
    address: str

    @property
    def prefix(self) -> Prefix:
        """What goes before a command that is to run there."""
        return ("ip", "netns", "exec", self.namespace)


class Network:
    """Namespaces that reach each other, and nothing else.

    Parameters
    ----------
    machines : int
    """

    def __init__(self, machines: int) -> None:
        self.name = f"mf{secrets.token_hex(3)}"
        subnet = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}"
        self.machines = [
            Machine(f"{self.name}-{number}", f"{subnet}.{number + 1}") for number in range(machines)
        ]

    def lay(self) -> None:
        """Make the namespaces, or skip the test."""
        if os.geteuid() != 0 or not shutil.which("ip"):
            pytest.skip("network namespaces need root and iproute2")
        try:
            # In a namespace too: where Docker runs, the machine's own firewall drops what bridges
            # forward.
            _ip("netns", "add", self.name)
            switch = ("-n", self.name)
            _ip(*switch, "link", "add", self.name, "type", "bridge")
            _ip(*switch, "link", "set", self.name, "up")
            for number, machine in enumerate(self.machines):
                cable, inside = f"{self.name}h{number}", f"{self.name}n{number}"
                _ip("netns", "add", machine.namespace)
                peer = ("peer", inside, "netns", machine.namespace)
                _ip(*switch, "link", "add", cable, "type", "veth", *peer)
                _ip(*switch, "link", "set", cable, "master", self.name, "up")
                there = ("-n", machine.namespace)
                _ip(*there, "addr", "add", f"{machine.address}/24", "dev", inside)
                _ip(*there, "link", "set", inside, "up")
                _ip(*there, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine allows no network namespaces: {error.stderr!r}")

    def remove(self) -> None:
        """Take them away, once no process is left in them."""
        for namespace in (*(machine.namespace for machine in self.machines), self.name):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)

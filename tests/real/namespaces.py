"""Machines of their own on one: network namespaces, joined by cables (Linux, root)."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.real.federation import Prefix


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _new_names() -> tuple[str, str]:
    """Return a name that no other test uses, and the first three bytes of such a subnet."""
    subnet = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}"
    return f"mf{secrets.token_hex(3)}", subnet


@contextmanager
def _or_skip() -> Iterator[None]:
    """Skip the test where the machine allows no namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    try:
        yield
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespaces: {error.stderr!r}")


def _remove(*namespaces: str) -> None:
    """Take namespaces away with the cables in them, once no process is left there."""
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


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
        self.name, subnet = _new_names()
        self.machines = [
            Machine(f"{self.name}-{number}", f"{subnet}.{number + 1}") for number in range(machines)
        ]

    def lay(self) -> None:
        """Make the namespaces, or skip the test."""
        with _or_skip():
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
                _address(machine, inside)

    def remove(self) -> None:
        """Take them away, once no process is left in them."""
        _remove(*(machine.namespace for machine in self.machines), self.name)


class Cable:
    """A namespace that is joined to this machine itself, by a cable that can be cut."""

    def __init__(self) -> None:
        name, subnet = _new_names()
        self.machine = Machine(name, f"{subnet}.2")
        self.host = f"{subnet}.1"
        self._interface = f"{name}h"

    def lay(self) -> None:
        """Make the namespace, or skip the test."""
        with _or_skip():
            name, inside = self.machine.namespace, f"{self.machine.namespace}n"
            _ip("netns", "add", name)
            _ip("link", "add", self._interface, "type", "veth", "peer", inside, "netns", name)
            _ip("addr", "add", f"{self.host}/24", "dev", self._interface)
            _ip("link", "set", self._interface, "up")
            _address(self.machine, inside)

    def cut(self) -> None:
        """Take the cable out."""
        _ip("link", "set", self._interface, "down")

    def heal(self) -> None:
        """Put it back."""
        _ip("link", "set", self._interface, "up")

    def remove(self) -> None:
        """Take both away, once no process is left in the namespace."""
        subprocess.run(["ip", "link", "del", self._interface], capture_output=True, check=False)
        _remove(self.machine.namespace)


def _address(machine: Machine, interface: str) -> None:
    """Give a machine's end of a cable its address."""
    there = ("-n", machine.namespace)
    _ip(*there, "addr", "add", f"{machine.address}/24", "dev", interface)
    _ip(*there, "link", "set", interface, "up")
    _ip(*there, "link", "set", "lo", "up")

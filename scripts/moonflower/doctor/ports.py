"""Ports: free, or in use by whom, and from where they can be reached."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from scripts.moonflower.deployment.description import hears
from scripts.moonflower.deployment.fence import INSTALL, find_nginx
from scripts.moonflower.doctor.bundle import (
    CA_CERTIFICATE,
    FENCE_ADDRESS,
    FENCE_PORT,
    SERVER_NAME,
    SUPERLINK_PORT,
    Bundle,
)
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

DEFAULT_FENCE_PORT, DEFAULT_SUPERLINK_PORT = 9443, 8000
_LISTENING = "0A"
_BUNDLE = re.compile(r"(?:--ssl-certfile|-c) (\S+)/(?:server\.crt|nginx\S*\.conf)")
SECONDS = 10.0


@dataclass(frozen=True)
class Listener:
    """A process that listens on a port.

    Attributes
    ----------
    address : str
        Of the interface; ``0.0.0.0`` or ``::``: all of them.
    process : str
        Its command and number; empty where another user's processes can't be looked at.
    bundle : str
        The folder of the federation that a SuperLink or a fence was started for; empty: unknown.
    """

    address: str
    process: str
    bundle: str = ""

    @property
    def loopback_only(self) -> bool:
        """Whether other machines can't reach it."""
        return ip_address(self.address).is_loopback


def check_ports(bundle: Bundle) -> Iterator[Finding]:
    """Look at the port that is published and at the one that must not be."""
    fence = bundle.port(FENCE_PORT, DEFAULT_FENCE_PORT)
    superlink = bundle.port(SUPERLINK_PORT, DEFAULT_SUPERLINK_PORT)
    address = bundle.settings.get(FENCE_ADDRESS) or "0.0.0.0"  # noqa: S104 (only looked at)
    yield from _check_names(bundle, address)
    yield _check_port(bundle, "fence", address, fence, FENCE_PORT, "nginx")
    yield _check_port(
        bundle, "SuperLink", "127.0.0.1", superlink, SUPERLINK_PORT, "flower-superlink"
    )
    open_to_others = [each for each in listeners(superlink) if not each.loopback_only]
    if open_to_others:
        # The fence is no protection for a port that can be reached beside it.
        yield failed(
            "Control interface",
            f"port {superlink} listens on {', '.join(each.address for each in open_to_others)}: "
            "whoever reaches it can run code on every node, without a login",
            "start the SuperLink with scripts/superlink, which keeps it on 127.0.0.1",
        )


def check_nginx() -> Iterator[Finding]:
    """Look whether the fence can be started here."""
    nginx = find_nginx()
    if nginx is None:
        remedy = f"{INSTALL}; nothing, if the fence is a container"
        yield warning("nginx", "it is not installed, and the fence needs it", remedy)
    else:
        yield ok("nginx", nginx)


def _check_names(bundle: Bundle, address: str) -> Iterator[Finding]:
    name = bundle.settings.get(SERVER_NAME, "")
    if not hears(address, name):
        yield failed(
            "address of the fence",
            f"nodes call {name}, and the fence listens on {address} only: nobody will reach it",
            "moonflower provision --fence-address ::, then copy the bundle again",
        )


def _check_port(
    bundle: Bundle, what: str, address: str, port: int, setting: str, program: str
) -> Finding:
    check = f"port of the {what}"
    users = [each for each in listeners(port) if _overlap(each.address, address)]
    if not users:
        problem = _bind_problem(address, port)
        if problem:
            return failed(check, f"{address}:{port}: {problem}", f"change {setting}, or mend it")
        return ok(check, f"{address}:{port} is free")
    names = sorted({each.process or "a process of another user" for each in users})
    found = f"{address}:{port} is in use by {', '.join(names)}"
    if all(program in each.process for each in users):
        if _is_ours(bundle, address, port):
            return ok(check, found)
        theirs = ", ".join(sorted({each.bundle for each in users if each.bundle})) or "not known"
        return failed(
            check,
            f"{address}:{port} is in use by another federation's {what}: {', '.join(names)}, "
            f"started with the bundle {theirs}",
            "give one of the two other ports: moonflower provision --port, --superlink-port",
        )
    remedy = (
        f"if that is not {program}, end it or change {setting}; to see who it is, run this as root"
    )
    return failed(check, found, remedy)


def _is_ours(bundle: Bundle, address: str, port: int) -> bool:
    """Return whether who listens there has a certificate of this bundle's CA."""
    host = ip_address(address)
    if host.is_unspecified:
        address = "::1" if host.version == 6 else "127.0.0.1"
    try:
        context = ssl.create_default_context(cafile=str(bundle.file(CA_CERTIFICATE)))
        context.check_hostname = False
        with (
            socket.create_connection((address, port), SECONDS) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except OSError:  # of sockets, of TLS, and of the certificate's file
        return False


def _overlap(one: str, other: str) -> bool:
    first, second = ip_address(one), ip_address(other)
    return first == second or first.is_unspecified or second.is_unspecified


def _bind_problem(address: str, port: int) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do: a port whose last connections are still winding up is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EACCES:
                return "ports below 1024 need root or CAP_NET_BIND_SERVICE"
            return str(error)
    return ""


def listeners(port: int, proc: Path = Path("/proc")) -> list[Listener]:
    """Return who listens on a TCP port of this machine (Linux; elsewhere nobody is seen)."""
    found: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                host, _, number = fields[1].partition(":")
                if fields[3] == _LISTENING and int(number, 16) == port:
                    found[fields[9]] = _address(host)
    owners = _owners(set(found), proc) if found else {}
    return [Listener(address, *owners.get(inode, ("", ""))) for inode, address in found.items()]


def _address(text: str) -> str:
    """Read an address as the kernel shows it: 32-bit words, each with its bytes turned around."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    address = ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)


def _owners(inodes: set[str], proc: Path) -> dict[str, tuple[str, str]]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[str, tuple[str, str]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        # Processes end while they are looked at, and those of other users can't be.
        with suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                inode = wanted.get(str(descriptor.readlink()))
                if inode and inode not in owners:
                    shown = f"{command_of(folder)} ({folder.name})"
                    owners[inode] = shown, _bundle_of(int(folder.name))
    return owners


def _bundle_of(pid: int) -> str:
    """Return the bundle that a SuperLink or nginx, or the parent of nginx's workers, was given."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, process.parent()):
            found = _BUNDLE.search(" ".join(each.cmdline())) if each else None
            if found:
                return found[1]
    return ""


def command_of(process: Path) -> str:
    """Return what a process in ``/proc`` is called: its script, where an interpreter runs one."""
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    script = words[1] if len(words) > 1 and Path(words[0]).name.startswith("python") else ""
    # nginx rewrites its command line to "nginx: master process ...".
    return Path(script if script.startswith("/") else words[0].split(" ")[0].rstrip(":")).name

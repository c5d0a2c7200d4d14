"""``federation.toml``: what was asked for."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from common.config import SettingsError, check_name
from common.files import write_bytes
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.repository import ROOT

FILE = "federation.toml"
SERVER = "server"
"""Not a node's name: ``--rotate server`` renews the server's certificate."""
ANY = "0.0.0.0"  # noqa: S104 (it is the published side)

_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
_HEAD = """\
# What `moonflower provision` was asked for. Change it and run the command again: nodes are added,
# the server's certificate is renewed if it has to be, and keys stay as they are. A name that is
# taken out here still may connect; `moonflower provision --revoke NAME` ends that.
"""


class Description(BaseModel):
    """A federation, as a person describes it.

    Attributes
    ----------
    servers : tuple[str, ...]
        Names and addresses under which nodes reach the server; the first goes into their settings.
    nodes : tuple[str, ...]
    fence_address : str
        Where the fence listens on the server; empty: wherever the servers' names may point, see
        :attr:`listens_on`.
    fence_port, superlink_port : int
        The published port, and the one on the server's loopback.
    ca_days, server_days : int
        How long certificates are valid that are made from now on.
    bundles, state : str
        Where bundles are installed on their machines, and below which folder these keep things.
    app : str
        Where Moonflower is on those machines.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    servers: tuple[str, ...] = Field(min_length=1)
    nodes: tuple[str, ...] = ()
    fence_address: str = ""
    fence_port: int = Field(default=9443, ge=1, le=65535)
    superlink_port: int = Field(default=8000, ge=1, le=65535)
    ca_days: int = Field(default=3650, ge=1, le=36500)
    server_days: int = Field(default=825, ge=1, le=36500)
    bundles: str = "/etc/moonflower"
    state: str = "/var/lib/moonflower"
    app: str = str(ROOT)

    @field_validator("servers")
    @classmethod
    def _servers(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return _unique((check_host(value) for value in values), "server")

    @field_validator("fence_address")
    @classmethod
    def _address(cls, value: str) -> str:
        # As people write it beside a port.
        value = value.removeprefix("[").removesuffix("]") if value.startswith("[") else value
        if value and not is_address(value):
            raise ValueError(
                f"{value!r} is no IP address; 0.0.0.0 means all of IPv4, :: all of IPv6 and IPv4"
            )
        return str(ipaddress.ip_address(value)) if value else ""

    @field_validator("nodes")
    @classmethod
    def _nodes(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return _unique((check_node(value) for value in values), "node")

    @field_validator("bundles", "state", "app")
    @classmethod
    def _folders(cls, value: str) -> str:
        # They stand in systemd units and environment files, where other characters need quotes.
        if not _PATH.fullmatch(value):
            raise ValueError(
                f"{value!r}: an absolute path of A-Z a-z 0-9 '.', '_', '-' and '/' is needed"
            )
        return value.rstrip("/") or "/"

    @property
    def superlink(self) -> str:
        """Where nodes reach the fence, as ``host:port``."""
        return host_and_port(self.servers[0], self.fence_port)

    @property
    def listens_on(self) -> str:
        """The fence's address: all of IPv4, and of IPv6 if a server is named by such an address."""
        return self.fence_address or ("::" if any(":" in each for each in self.servers) else ANY)

    @property
    def unheard(self) -> tuple[str, ...]:
        """The servers' addresses of the other kind (IPv4, IPv6) than that on which it listens."""
        return tuple(each for each in self.servers if not hears(self.listens_on, each))

    def to_toml(self) -> str:
        """Return the text of ``federation.toml``."""
        lines = [
            # JSON's strings, numbers and lists of strings are TOML's, too.
            f"{key} = {json.dumps(value)}"
            for key, value in self.model_dump(mode="json", by_alias=True).items()
        ]
        return _HEAD + "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Write ``federation.toml`` in ``folder``."""
        write_bytes(folder / FILE, self.to_toml().encode())


def describe(folder: Path, changes: Mapping[str, Any]) -> Description:
    """Return what ``federation.toml`` and the command line ask for.

    Parameters
    ----------
    folder : Path
        May hold ``federation.toml``.
    changes : Mapping[str, Any]
        Fields of :class:`Description`. Servers and nodes are added to those in the file, the
        others replace what is there; ``None`` and empty lists change nothing.

    Raises
    ------
    DeploymentError
        The file can't be read, or a value can't be used.
    """
    values = _read(folder / FILE)
    for key, value in changes.items():
        if isinstance(value, list | tuple):
            there = values.get(key, [])
            _refuse_twice(value, key.removesuffix("s"))
            values[key] = [*there, *(new for new in value if new not in there)]
        elif value is not None:
            values[key.replace("_", "-")] = value
    if not values.get("servers"):
        raise DeploymentError(
            "no server was named: give --server with the name or address under which nodes reach "
            f"it (may be repeated), or servers = [...] in {folder / FILE}"
        )
    try:
        return Description.model_validate(values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in each['loc'])}: "
            f"{each['msg'].removeprefix('Value error, ')}"
            for each in error.errors()
        ]
        raise DeploymentError(
            "the federation can't be set up as described:\n  " + "\n  ".join(problems)
        ) from None


def _refuse_twice(values: Iterable[str], what: str) -> None:
    try:
        _unique(values, what)
    except ValueError as error:
        raise DeploymentError(str(error)) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DeploymentError(f"{file} can't be read: {error}") from None


def is_address(host: str) -> bool:
    """Return whether ``host`` is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_and_port(host: str, port: int | str) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def hears(listens_on: str, host: str) -> bool:
    """Return whether who listens on an address can be reached by ``host``, as far as that tells.

    A name may point anywhere, and another machine may translate addresses, but hardly one kind
    into the other. ``::`` stands for all of IPv4, too.
    """
    if listens_on == "::" or not is_address(host):
        return True
    return ipaddress.ip_address(listens_on).version == ipaddress.ip_address(host).version


def check_host(host: str) -> str:
    """Return ``host`` if it is an IP address or a DNS name, else raise ``ValueError``."""
    if is_address(host):
        return str(ipaddress.ip_address(host))
    labels = host.split(".")
    # Four numbers that are no address are a slip, and no name either.
    if (
        len(host) > 253
        or labels[-1].isdecimal()
        or not all(_LABEL.fullmatch(label) for label in labels)
    ):
        raise ValueError(
            f"server {host!r} is neither an IP address nor a DNS name: give it without port, "
            "scheme or wildcard, as fl.example.org, 192.0.2.10 or 2001:db8::1 (a name with other "
            "letters in its xn-- form)"
        )
    return host.lower()


def check_node(name: str) -> str:
    """Return ``name`` if a node may be called so, else raise ``ValueError``."""
    try:
        check_name(name, "node name")
    except SettingsError as error:
        raise ValueError(str(error)) from None
    if name[0] in ".-" or name.lower() == SERVER:
        raise ValueError(
            f"node name {name!r} can't be used: it must not begin with '.' or '-' and not be "
            f"{SERVER!r}. Choose another node name."
        )
    return name


def _unique(values: Iterable[str], what: str) -> tuple[str, ...]:
    """Return ``values``, or raise ``ValueError`` if one is there twice.

    Some file systems do not tell capital letters from small ones, so neither does this.
    """
    seen: dict[str, str] = {}
    for value in values:
        if value.lower() in seen:
            raise ValueError(
                f"{what} {value!r} is named twice (as {seen[value.lower()]!r}): name each once, "
                "and let names differ by more than capital letters"
            )
        seen[value.lower()] = value
    return tuple(seen.values())

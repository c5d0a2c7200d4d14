"""A party's bundle: which files it has, what its settings say, who may read it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.config import SettingsError, check_name
from scripts.moonflower.deployment.environment_file import (
    NODE_FILE,
    SERVER_FILE,
    with_environment,
)
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.provisioning import ADMITTED
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

Role = Literal["server", "node"]

SETTINGS_FILES: dict[Role, str] = {"server": SERVER_FILE, "node": NODE_FILE}
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
SERVER_CERTIFICATE, SERVER_KEY = "server.crt", "server.key"
NODE_KEY, NODE_PUBLIC_KEY = "node.key", "node.pub"

SERVER_NAME = "MOONFLOWER_SERVER_NAME"
FENCE_ADDRESS, FENCE_PORT = "MOONFLOWER_FENCE_ADDRESS", "MOONFLOWER_FENCE_PORT"
SUPERLINK_PORT, DATABASE = "MOONFLOWER_SUPERLINK_PORT", "MOONFLOWER_DATABASE"
SUPERLINK, CLIENT_NAME = "MOONFLOWER_SUPERLINK", "MOONFLOWER_CLIENT_NAME"

_SECRETS: dict[Role, tuple[str, ...]] = {"server": (SERVER_KEY,), "node": (NODE_KEY,)}
_NEEDED: dict[Role, tuple[str, ...]] = {
    "server": (CA_CERTIFICATE, SERVER_CERTIFICATE, SERVER_KEY),
    "node": (CA_CERTIFICATE, NODE_KEY),
}
_MAKE_IT = "copy the whole bundle again, or make it with `moonflower provision`"


@dataclass(frozen=True)
class Bundle:
    """A folder that ``moonflower provision`` wrote, and its settings.

    Attributes
    ----------
    folder : Path
    role : str
    settings : dict[str, str]
        What the start script of this machine would take: the environment wins over the file.
    """

    folder: Path
    role: Role
    settings: dict[str, str]

    @classmethod
    def open(cls, folder: Path, role: Role) -> Bundle:
        """Read the settings.

        Raises
        ------
        SettingsError
            The folder or its settings are missing, or can't be read.
        """
        path = folder / SETTINGS_FILES[role]
        if not path.is_file():
            raise SettingsError(
                f"{folder} is no {role}'s bundle: it has no {path.name}. Give the folder that "
                f"`moonflower provision` wrote for the {role} with --bundle"
            )
        ours = {key: value for key, value in os.environ.items() if key.startswith("MOONFLOWER_")}
        try:
            settings = with_environment(ours, path)
        except DeploymentError as error:
            raise SettingsError(str(error)) from None
        return cls(folder.absolute(), role, settings)

    def file(self, name: str) -> Path:
        """Return where a file of the bundle is, or would be."""
        return self.folder / name

    def port(self, key: str, default: int) -> int:
        """Return a port of the settings.

        Raises
        ------
        SettingsError
            It is not a number from 1 to 65535.
        """
        text = self.settings.get(key) or str(default)
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 65535:
            raise SettingsError(
                f"{key}={text} in {SETTINGS_FILES[self.role]}: a port from 1 to 65535 is needed"
            )
        return int(text)

    def public_keys(self) -> list[Path]:
        """Return the public keys of the nodes that may connect, sorted by name."""
        return sorted(self.file(ADMITTED).glob("*.pub"))


def check_bundle(bundle: Bundle) -> Iterator[Finding]:
    """Look for missing files, for secrets that others may read, and for the CA's key."""
    missing = [name for name in _NEEDED[bundle.role] if not bundle.file(name).is_file()]
    if missing:
        yield failed("bundle", f"{bundle.folder} lacks {', '.join(missing)}", _MAKE_IT)
    else:
        yield ok("bundle", str(bundle.folder))
    if bundle.file(CA_KEY).exists():
        remedy = f"keep it on a machine of its own and delete {bundle.file(CA_KEY)}"
        found = "the CA's private key is here: who takes it can pose as the server"
        yield warning("CA key", found, remedy)
    yield from _check_permissions(bundle)


def _check_permissions(bundle: Bundle) -> Iterator[Finding]:
    secrets = [path for name in _SECRETS[bundle.role] if (path := bundle.file(name)).exists()]
    open_to_others = [path for path in secrets if _mode(path) & 0o077]
    for path in open_to_others:
        found = f"{path} has mode {_mode(path):04o}: others on this machine may read the key"
        yield failed("permissions", found, f"chmod 600 {path}, and a new key if others log in here")
    if _mode(bundle.folder) & 0o077:
        found = f"{bundle.folder} has mode {_mode(bundle.folder):04o}"
        yield warning("permissions", found, f"chmod 700 {bundle.folder}")
    elif secrets and not open_to_others:
        yield ok("permissions", "the private key and its folder are readable by their owner only")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def check_client_name(bundle: Bundle) -> Iterator[Finding]:
    """Look whether the node has a name that can be used."""
    name = bundle.settings.get(CLIENT_NAME, "")
    try:
        yield ok("client name", check_name(name, "client name"))
    except SettingsError as error:
        remedy = f"set {CLIENT_NAME} in {SETTINGS_FILES['node']}, another one for every node"
        yield failed("client name", str(error), remedy)

"""Which nodes the SuperLink admits: those whose keys are in the bundle, and no others.

``flwr supernode list`` shows numbers but no keys, so the numbers that registrations gave are kept
in a file next to the SuperLink's database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from common.files import DamagedFileError, read_json, sha256, write_json
from scripts.moonflower.deployment.errors import DeploymentError, SuperLinkError

IN_USE = "already in use"
"""In Flower's words for a key that its database knows, be it registered or unregistered."""


class Registrar(Protocol):
    """What registers and lists nodes: see ``connection.Connection``."""

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a ``flwr`` command and return its answer."""


def registrations_file(database: Path) -> Path:
    """Return where the numbers of a database's nodes are kept."""
    return database.with_name(f"{database.name}.nodes.json")


def key_digest(file: Path) -> str:
    """Return the SHA-256 of a public key, without the remark behind it: the notes' key for it."""
    return sha256(b" ".join(file.read_bytes().split()[:2]))


def revoked_keys(folder: Path) -> set[str]:
    """Return the digests of the keys that ``moonflower provision`` has set aside."""
    return {key_digest(file) for file in folder.glob("*.pub")}


@dataclass
class Registry:
    """The nodes of one SuperLink.

    Attributes
    ----------
    keys : Path
        Folder of the public keys that are to be admitted, ``NAME.pub``.
    revoked : Path
        Folder of the keys that are not, even where a copy of ``keys`` left one of them there.
    file : Path
        See :func:`registrations_file`.
    superlink : Registrar
    say : Callable[[str], None]
        Takes what was done.
    numbers : dict[str, str]
        By the SHA-256 of a public key: the node's number.
    """

    keys: Path
    revoked: Path
    file: Path
    superlink: Registrar
    say: Callable[[str], None]
    numbers: dict[str, str] = field(default_factory=dict)

    def synchronise(self) -> int:
        """Unregister nodes whose key is gone, register new ones, and return how many are admitted.

        Raises
        ------
        DeploymentError
            The SuperLink refused, or its database and the file don't belong together.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.file}.lock"):
            return self._synchronise()

    def _synchronise(self) -> int:
        wanted = {key_digest(file): file for file in sorted(self.keys.glob("*.pub"))}
        for key in revoked_keys(self.revoked) & set(wanted):
            self.say(f"{wanted.pop(key)} was revoked: it is not admitted. Delete it")
        known = self._read()
        active = self._active()
        if active and known is None:
            raise DeploymentError(
                f"the SuperLink's database knows {len(active)} nodes, but {self.file}, which says "
                "whose they are, is missing: put both back from the same backup, or move the "
                "database away (runs and their results stay readable; all nodes are then "
                "registered anew with the keys they have)"
            )
        self.numbers = {key: number for key, number in (known or {}).items() if number in active}
        unknown = active - set(self.numbers.values())
        # Those that go, first: their owners are waiting for it.
        for key in [key for key in self.numbers if key not in wanted]:
            self._unregister(self.numbers[key])
            del self.numbers[key]
            self._write()
        for key, file in wanted.items():
            if key not in self.numbers:
                self._register(key, file, unknown)
        for number in sorted(unknown):
            self.say(f"node {number} was registered by somebody else, not from {self.keys}")
            self._unregister(number)
        self._write()
        return len(self.numbers)

    def _register(self, key: str, file: Path, unknown: set[str]) -> None:
        try:
            answer = self.superlink.flwr("supernode", "register", str(file))
        except SuperLinkError as error:
            if IN_USE not in str(error):
                raise
            if len(unknown) == 1:
                # A run of this that was killed between the registration and the note of it.
                self.numbers[key] = unknown.pop()
                self._write()
                return
            self.say(
                f"warning: the SuperLink refuses the key of node {file.stem}: it was registered "
                "and unregistered before, which is final in Flower. The node needs a new one: "
                f"moonflower provision --rotate {file.stem}"
            )
            return
        self.numbers[key] = str(answer["node-id"])
        self._write()
        self.say(f"registered node {file.stem}")

    def _unregister(self, number: str) -> None:
        self.superlink.flwr("supernode", "unregister", number)
        self.say(f"unregistered node {number}")

    def _active(self) -> set[str]:
        nodes = self.superlink.flwr("supernode", "list")["nodes"]
        return {str(node["node-id"]) for node in nodes if node["status"] != "unregistered"}

    def _read(self) -> dict[str, str] | None:
        try:
            return dict(read_json(self.file))
        except FileNotFoundError:
            return None
        except (OSError, DamagedFileError, ValueError, TypeError) as error:
            raise DeploymentError(f"{self.file} can't be read: {error}") from None

    def _write(self) -> None:
        write_json(self.file, self.numbers)

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

from common.files import DamagedFileError, read_json, write_json
from common.node_keys import FEDERATION, key_digest
from scripts.moonflower.deployment.errors import (
    DeploymentError,
    SuperLinkError,
    UnregistersManyError,
)

IN_USE = "already in use"
"""In Flower's words for a key that its database knows, be it registered or unregistered."""


class Registrar(Protocol):
    """What registers and lists nodes: see ``loopback_superlink.LoopbackSuperLink``."""

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a ``flwr`` command and return its answer."""


def registrations_file(database: Path) -> Path:
    """Return where the numbers of a database's nodes are kept."""
    return database.with_name(f"{database.name}.nodes.json")


def revoked_keys(folder: Path) -> set[str]:
    """Return the digests of the keys that ``moonflower provision`` has set aside."""
    return {key_digest(file) for file in folder.glob("*.pub")}


def read_numbers(file: Path, federation: str) -> dict[str, str] | None:
    """Return the numbers of the registered nodes by their keys' digests; None: nothing was noted.

    Parameters
    ----------
    file : Path
        See :func:`registrations_file`. One of version 0.1 does not say whose it is.
    federation : str
        Whose it has to be.

    Raises
    ------
    DeploymentError
        It can't be read, or is another federation's.
    """
    try:
        noted = {str(key): str(number) for key, number in read_json(file).items()}
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError, AttributeError) as error:
        raise DeploymentError(f"{file} can't be read: {error}") from None
    if noted.pop(FEDERATION, federation) != federation:
        raise DeploymentError(
            f"{file} belongs to another federation, whose CA is another one: put this federation's "
            "file and database back, or set MOONFLOWER_DATABASE to a file of its own. Nothing was "
            "changed"
        )
    return noted


def admitted_keys(keys: Path, revoked: Path) -> dict[str, Path]:
    """Return the public keys that may connect, by their digests, in the order of names.

    Parameters
    ----------
    keys : Path
        Folder of the keys that are to be admitted, ``NAME.pub``.
    revoked : Path
        Folder of the keys that are not, even where a copy of ``keys`` left one of them there.
    """
    gone = revoked_keys(revoked)
    found = {key_digest(file): file for file in sorted(keys.glob("*.pub"))}
    return {key: file for key, file in found.items() if key not in gone}


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
    federation : str
        See :func:`~scripts.moonflower.deployment.authority.federation_id`.
    superlink : Registrar
    say : Callable[[str], None]
        Takes what was done.
    unregister_many : bool
        Whether more than one node may go at once whose key was not revoked.
    numbers : dict[str, str]
        By the SHA-256 of a public key: the node's number.
    """

    keys: Path
    revoked: Path
    file: Path
    federation: str
    superlink: Registrar
    say: Callable[[str], None]
    unregister_many: bool = False
    numbers: dict[str, str] = field(default_factory=dict)

    def synchronise(self) -> int:
        """Unregister nodes whose key is gone, register new ones, and return how many are admitted.

        Raises
        ------
        DeploymentError
            The SuperLink refused, or its database and the file don't belong together.
        UnregistersManyError
            More than one node would go that nobody has revoked, or the only one. Only revoked ones
            went.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.file}.lock"):
            return self._synchronise()

    def _synchronise(self) -> int:
        wanted = admitted_keys(self.keys, self.revoked)
        for file in sorted(set(self.keys.glob("*.pub")) - set(wanted.values())):
            self.say(f"{file} is not admitted: it was revoked, or another has its key. Delete it")
        known = read_numbers(self.file, self.federation)
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
        self._forget(set(self.numbers) & revoked_keys(self.revoked))
        gone = set(self.numbers) - set(wanted)
        self._check(len(gone), len(unknown), len(active))
        self._forget(gone)
        for key, file in wanted.items():
            if key not in self.numbers:
                self._register(key, file, unknown)
        for number in sorted(unknown):
            self.say(f"node {number} was registered by somebody else, not from {self.keys}")
            self._unregister(number)
        self._write()
        return len(self.numbers)

    def _check(self, gone: int, unknown: int, active: int) -> None:
        """Refuse to spend many keys, or all, that nobody has revoked."""
        if self.unregister_many or (gone + unknown < 2 and gone < max(active, 1)):
            return
        raise UnregistersManyError(
            f"{gone + unknown} of {active} registered nodes would be unregistered, which is final: "
            f"they would need new keys. Their keys are not in {self.keys} (or they are not in "
            f"{self.file}), and nobody has revoked them. None was unregistered. If a wrong folder "
            "or file was copied here, put the right one back (the folder revoked belongs to it); "
            "if these nodes have to go: moonflower nodes sync --unregister-many"
        )

    def _forget(self, keys: set[str]) -> None:
        for key in sorted(keys):
            self._unregister(self.numbers.pop(key))
            self._write()

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

    def _write(self) -> None:
        write_json(self.file, {FEDERATION: self.federation, **self.numbers})

"""Making a federation's folder, and changing it: nodes are added, renewed and revoked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common.files import flush_folder, make_folder, remove_unfinished, write_bytes
from scripts.moonflower.deployment.authority import (
    Authority,
    certificate_pem,
    new_node_key,
    private_pem,
    public_line,
    read_certificate,
    read_private_key,
    why_renew,
)
from scripts.moonflower.deployment.bundles import write_node_settings, write_server_settings
from scripts.moonflower.deployment.description import (
    FILE,
    SERVER,
    Description,
    host_and_port,
)
from scripts.moonflower.deployment.environment_file import SERVER_FILE, read_environment
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.fence_keys import renew_known_keys

ADMITTED = "nodes"
"""Folder of the server's bundle with the public keys of the nodes that may connect."""

REVOKED = "revoked"
"""Folder of the server's bundle with those that may not any more."""


@dataclass
class Provisioning:
    """One run of ``moonflower provision``.

    Attributes
    ----------
    folder : Path
        The federation's folder.
    say : Callable[[str], None]
        Takes what was done, one sentence each.
    changed : dict[str, list[str]]
        By the folder of a party (``server``, ``nodes/NAME``) whose bundle has to be copied (again):
        the files that are new or other ones than before.
    made : set[str]
        Those of them that were not there before.
    """

    folder: Path
    say: Callable[[str], None]
    changed: dict[str, list[str]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    @property
    def server(self) -> Path:
        """The server's bundle."""
        return self.folder / SERVER

    def node(self, name: str) -> Path:
        """Return a node's bundle."""
        return self.folder / "nodes" / name

    def admitted(self, name: str) -> Path:
        """Return where the server has a node's public key."""
        return self.server / ADMITTED / f"{name}.pub"

    def run(
        self, description: Description, rotate: Iterable[str] = (), revoke: Iterable[str] = ()
    ) -> Description:
        """Bring the folder to what is described, and return what it describes now.

        What is there stays as it is, except what ``rotate`` and ``revoke`` name. Every step leaves
        a folder that the same command can go on with.

        Raises
        ------
        DeploymentError
            A name is unknown, or the CA can't be used. Nothing was changed by then.
        """
        rotate, revoke = tuple(rotate), tuple(revoke)
        self._check(description, rotate, revoke)
        before, address = self._bundles(), self._address()
        with _private_files():
            for folder in (self.folder, self.folder / "ca", self.server / ADMITTED):
                _make_private(folder)
            authority = Authority.open(self.folder / "ca", description.ca_days)
            nodes = tuple(name for name in description.nodes if name not in revoke)
            description = description.model_copy(update={"nodes": nodes})
            # Before the keys go: a run that is cut short must not let a later one admit them again.
            description.write(self.folder)
            for name in revoke:
                self._revoke(name)
            self._write_server(description, authority, renew=SERVER in rotate)
            for name in description.nodes:
                self._write_node(description, authority, name, renew=name in rotate)
            renew_known_keys(self.server / ADMITTED, self.server / REVOKED, self.say)
        self._compare(before)
        if address not in ("", description.superlink):
            self._tell_absent(description)
        if description.unheard:
            self.say(
                f"warning: the fence listens on {description.listens_on}, where nobody reaches it "
                f"as {', '.join(description.unheard)}: --fence-address :: listens on IPv6 and IPv4"
            )
        return description

    def _bundles(self) -> dict[str, dict[str, bytes]]:
        """Return the contents of every bundle's files, by its folder."""
        folders = [self.server, *sorted((self.folder / "nodes").glob("*"))]
        return {
            folder.relative_to(self.folder).as_posix(): {
                file.relative_to(folder).as_posix(): file.read_bytes()
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            }
            for folder in folders
            if folder.is_dir()
        }

    def _address(self) -> str:
        """Return where nodes reached the server before; empty: there was none."""
        file = self.server / SERVER_FILE
        there = read_environment(file) if file.exists() else {}
        host, port = there.get("MOONFLOWER_SERVER_NAME"), there.get("MOONFLOWER_FENCE_PORT")
        return host_and_port(host, port) if host and port else ""

    def _compare(self, before: dict[str, dict[str, bytes]]) -> None:
        """Find what has changed, and say it of bundles that were there before."""
        for party, files in self._bundles().items():
            there = before.get(party, {})
            names = [name for name in {**there, **files} if there.get(name) != files.get(name)]
            if not names:
                continue
            self.changed[party] = names
            if not there:
                self.made.add(party)
                continue
            shown = (name + _settings_of(name, there, files) for name in names)
            self.say(f"changed in {party}: {', '.join(shown)}")

    def _tell_absent(self, description: Description) -> None:
        """Say what has to be changed in bundles that are not here any more."""
        away = [name for name in description.nodes if not self.node(name).exists()]
        if away:
            self.say(
                f"the bundles of {', '.join(away)} are not here any more: set MOONFLOWER_SUPERLINK="
                f"{description.superlink} in node.env on these machines"
            )

    def _check(
        self, description: Description, rotate: tuple[str, ...], revoke: tuple[str, ...]
    ) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise DeploymentError(f"{self.folder} is a file: choose another folder with --output")
        there = sorted(each.name for each in self.folder.glob("*")) if self.folder.exists() else []
        if there and FILE not in there and set(there) - {"ca", SERVER, "nodes", REVOKED}:
            raise DeploymentError(
                f"{self.folder} holds other things than a federation ({', '.join(there[:5])}): "
                "choose an empty or new folder with --output"
            )
        gone = strangers(self.folder, description)
        for name in (*rotate, *revoke):
            more = (SERVER,) if name in rotate else gone
            if name not in (*description.nodes, *more):
                raise DeploymentError(
                    f"there is no node {name!r} in this federation. Its nodes: "
                    f"{', '.join((*description.nodes, *gone)) or 'none'}. --rotate {SERVER} renews "
                    "the server's certificate"
                )
        if both := set(rotate) & set(revoke):
            raise DeploymentError(f"{', '.join(sorted(both))}: choose one of --rotate and --revoke")

    def _write_server(self, description: Description, authority: Authority, renew: bool) -> None:
        certificate_file, key_file = self.server / "server.crt", self.server / "server.key"
        ca = certificate_pem(authority.certificate)
        write_bytes(self.server / "ca.crt", ca)
        why = "it was asked for" if renew else ""
        if not why and not (certificate_file.exists() and key_file.exists()):
            why = "there was none"
        if not why:
            certificate = read_certificate(certificate_file)
            why = why_renew(certificate, authority, description.servers)
            # A run that was killed between the two files leaves a pair that does not fit.
            if certificate.public_key() != read_private_key(key_file).public_key():
                why = "it did not fit its key"
        if why:
            key, certificate = authority.sign_server(description.servers, description.server_days)
            write_bytes(key_file, private_pem(key))
            write_bytes(certificate_file, certificate_pem(certificate))
            self.say(
                f"made the server's certificate ({why}), valid until "
                f"{certificate.not_valid_after_utc:%Y-%m-%d}"
            )
        write_server_settings(self.server, description)
        remove_unfinished(self.server)

    def _write_node(
        self, description: Description, authority: Authority, name: str, renew: bool
    ) -> None:
        bundle, key_file = self.node(name), self.node(name) / "node.key"
        admitted = self.admitted(name)
        if not bundle.exists() and admitted.exists() and not renew:
            return  # handed out and taken away from here, as it should be
        _make_private(bundle)
        if renew or not key_file.exists():
            write_bytes(key_file, new_node_key())
            self.say(f"made a {'new ' if renew else ''}key for node {name}")
        try:
            public = public_line(key_file.read_bytes(), name)
        except ValueError as error:
            raise DeploymentError(
                f"{key_file} is no key of a node: {error}. --rotate {name} makes a new one"
            ) from None
        write_bytes(bundle / "ca.crt", certificate_pem(authority.certificate))
        write_bytes(bundle / "node.pub", public)
        write_node_settings(bundle, description, name)
        remove_unfinished(bundle)
        if admitted.exists() and admitted.read_bytes() != public:
            self._set_aside(name)
        write_bytes(admitted, public)

    def _revoke(self, name: str) -> None:
        if self.admitted(name).exists():
            self._set_aside(name)
        if self.node(name).exists():
            # Its key opens nothing any more.
            shutil.rmtree(self.node(name))
        self.say(f"revoked node {name}")

    def _set_aside(self, name: str) -> None:
        """Take a public key from the admitted ones."""
        folder = self.server / REVOKED
        _make_private(folder)
        number = 1
        while (target := folder / f"{name}-{number}.pub").exists():
            number += 1
        self.admitted(name).rename(target)
        flush_folder(folder)
        flush_folder(self.server / ADMITTED)


def strangers(folder: Path, description: Description) -> list[str]:
    """Return the nodes that may connect and are not described (any more)."""
    admitted = (folder / SERVER / ADMITTED).glob("*.pub")
    return sorted({file.stem for file in admitted} - set(description.nodes))


def _settings_of(name: str, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """Return the settings of an environment file that are new, in brackets."""
    if not name.endswith(".env"):
        return ""
    there = before.get(name, b"").decode().splitlines()
    new = [line for line in after.get(name, b"").decode().splitlines() if line not in there]
    return f" ({', '.join(new)})" if new else ""


@contextmanager
def _private_files() -> Iterator[None]:
    """Files and folders that are made inside can be read by their owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _make_private(folder: Path) -> None:
    make_folder(folder)
    folder.chmod(0o700)

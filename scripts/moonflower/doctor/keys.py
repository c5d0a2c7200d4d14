"""Node keys: right kind, one per name, known to the SuperLink."""

from __future__ import annotations

import hashlib
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from common.config import NAME_PATTERN
from common.node_keys import key_digest
from scripts.moonflower.deployment.authority import federation_id
from scripts.moonflower.deployment.errors import DeploymentError, SuperLinkError
from scripts.moonflower.deployment.fence_keys import KNOWN_KEYS, known_keys
from scripts.moonflower.deployment.node_registry import (
    read_numbers,
    registrations_file,
    revoked_keys,
)
from scripts.moonflower.deployment.provisioning import ADMITTED, REVOKED
from scripts.moonflower.doctor.bundle import (
    CA_CERTIFICATE,
    DATABASE,
    NODE_KEY,
    NODE_PUBLIC_KEY,
    SUPERLINK_PORT,
    Bundle,
)
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning
from scripts.moonflower.doctor.ports import DEFAULT_SUPERLINK_PORT, listeners
from scripts.moonflower.loopback_superlink import LoopbackSuperLink

_ROTATE = "moonflower provision --rotate NAME, then copy both bundles"


def fingerprint(public_key: bytes) -> str:
    """Return what ``ssh-keygen -l`` shows of an OpenSSH public key.

    Raises
    ------
    ValueError
        It is no ECDSA key on the curve P-384.
    """
    try:
        key = serialization.load_ssh_public_key(public_key)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ValueError("it is no ECDSA key on the curve P-384")
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    digest = hashlib.sha256(b64decode(line.split()[1])).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def check_node_key(bundle: Bundle) -> Iterator[Finding]:
    """Look at a node's own key pair, and show its fingerprint to compare with the server's."""
    path = bundle.file(NODE_KEY)
    public = _public_part(path)
    if public is None:
        found = f"{path} is no ECDSA P-384 private key without a password in OpenSSH format"
        yield failed("node key", found, f"copy the bundle again, or {_ROTATE}")
        return
    beside = bundle.file(NODE_PUBLIC_KEY)
    if beside.is_file() and _fingerprint_of(beside) != fingerprint(public):
        found = f"{beside} belongs to another private key than {path}"
        yield failed("node key", found, "copy both again from one bundle")
        return
    # Whether the server knows it can only be told by using it, which would put a running node of
    # this key offline: so the two fingerprints are to be compared by a person.
    found = f"{fingerprint(public)} (`moonflower doctor server` shows which are registered)"
    yield ok("node key", found)


def check_public_keys(bundle: Bundle) -> Iterator[Finding]:
    """Look at the keys of the nodes that may connect."""
    files = bundle.public_keys()
    if not files:
        found = f"{bundle.file(ADMITTED)} has no public key: no node may connect"
        yield warning("node keys", found, "add nodes with `moonflower provision`")
    seen: dict[str, str] = {}
    names: dict[str, str] = {}
    for file in files:
        name = file.stem
        if not NAME_PATTERN.fullmatch(name):
            found = f"{file.name}: {name!r} can't be a client's name"
            yield failed("node keys", found, "use A-Z a-z 0-9 . _ - for names, at most 64")
        other = names.setdefault(name.lower(), name)
        if other != name:
            found = f"{other} and {name} differ by case alone"
            yield warning("node keys", found, "rename one: some file systems take them for one")
        mark = _fingerprint_of(file)
        if not mark:
            found = f"{file} is no ECDSA P-384 public key in OpenSSH format"
            yield failed(f"key of {name}", found, _ROTATE)
        elif mark in seen:
            found = f"is the key of {seen[mark]} as well: Flower takes both for one node"
            yield failed(f"key of {name}", found, _ROTATE)
        else:
            seen[mark] = name


def check_known_keys(bundle: Bundle) -> Iterator[Finding]:
    """Look whether the fence lets through the keys that may connect, and no others."""
    keys = bundle.file(ADMITTED)
    file = keys / KNOWN_KEYS
    if file.is_file() and file.read_bytes() == known_keys(keys, bundle.file(REVOKED)):
        yield ok("keys at the fence", str(file))
    else:
        found = f"{file} does not fit the keys beside it: the fence lets through others than these"
        remedy = f"moonflower nodes sync --bundle {bundle.folder}, or restart the fence"
        yield failed("keys at the fence", found, remedy)


def check_registrations(bundle: Bundle) -> Iterator[Finding]:
    """Say of every key whether the SuperLink knows it, and whether its node is online."""
    database = bundle.settings.get(DATABASE, "")
    noted = None
    if database:
        federation = federation_id(bundle.file(CA_CERTIFICATE))
        try:
            noted = read_numbers(registrations_file(Path(database)), federation)
        except DeploymentError as error:
            yield failed("registered keys", str(error), "as the message says")
            return
    revoked = revoked_keys(bundle.file(REVOKED))
    if noted is None:
        for file in bundle.public_keys():
            found = f"{_fingerprint_of(file)}, to be registered when the SuperLink starts"
            yield ok(f"key of {file.stem}", found)
        return
    status = _node_status(bundle)
    for file in bundle.public_keys():
        check, mark = f"key of {file.stem}", _fingerprint_of(file)
        number = noted.get(key_digest(file))
        if key_digest(file) in revoked:
            found = f"{mark} was revoked, and its node is refused"
            yield warning(check, found, f"delete {file}")
            continue
        state = "registered" if status is None else status.get(number or "", "unknown")
        if number is None or state in ("unknown", "unregistered"):
            found = f"{mark} is not registered: its node is refused (exit 305)"
            yield failed(check, found, "moonflower nodes sync --bundle " + str(bundle.folder))
        else:
            shown = "registered; the SuperLink does not run" if status is None else state
            yield ok(check, f"{shown}, {mark}")


def _public_part(path: Path) -> bytes | None:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        return None
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    try:
        fingerprint(public)
    except ValueError:
        return None
    return public


def _fingerprint_of(file: Path) -> str:
    try:
        return fingerprint(file.read_bytes())
    except ValueError:
        return ""


def _node_status(bundle: Bundle) -> Mapping[str, str] | None:
    """Return the status of every node by its number; ``None`` while no SuperLink answers."""
    port = bundle.port(SUPERLINK_PORT, DEFAULT_SUPERLINK_PORT)
    if not listeners(port):
        return None
    with tempfile.TemporaryDirectory(prefix="moonflower-") as home:
        connection = LoopbackSuperLink(port, bundle.file(CA_CERTIFICATE), Path(home))
        connection.write()
        try:
            nodes = connection.flwr("supernode", "list")["nodes"]
        except SuperLinkError as error:
            raise OSError(f"the SuperLink on port {port} doesn't list its nodes: {error}") from None
    return {str(node["node-id"]): str(node["status"]) for node in nodes}

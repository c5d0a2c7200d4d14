"""The keys that the fence knows: whoever shows none of them gets no further.

Flower's SuperNode sends its public key in a header with every message, and the SuperLink checks the
signature beside it only when it has read the whole body. So the fence, which can't check a
signature, lets no other keys than the bundle's nodes' through: those that were not revoked.
"""

from __future__ import annotations

import signal
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import psutil
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from common.files import write_bytes
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.node_registry import admitted_keys

KNOWN_KEYS = "known-keys.map"
"""In the folder of the admitted keys, so that it travels with them."""

_HEAD = """\
# The keys that the fence lets through to the SuperLink, as Flower's SuperNodes send them. Made from
# the public keys beside this file by `moonflower provision` and `moonflower nodes sync`.
"""


def known_keys(keys: Path, revoked: Path) -> bytes:
    """Return the entries of nginx's ``map``: for each admitted key its node's name.

    Parameters
    ----------
    keys, revoked : Path
        Folders of public keys in OpenSSH's format, ``NAME.pub``. One that is none is passed over:
        the SuperLink refuses to register it, with the reason.
    """
    lines = []
    for file in admitted_keys(keys, revoked).values():
        header = _header(file.read_bytes())
        if header:
            lines.append(f'"{header}" "{file.stem}";\n')
    return (_HEAD + "".join(lines)).encode()


def _header(public: bytes) -> str:
    """Return what flwr 1.42 sends as ``flwr-public-key``: the key's PEM in base64."""
    try:
        key = load_ssh_public_key(public)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    return b64encode(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).decode()


def renew_known_keys(keys: Path, revoked: Path, say: Callable[[str], None]) -> None:
    """Bring the file that the fence reads in line with the public keys beside it.

    Where the bundle can't be written, as in a container or a systemd unit, what differs is said.

    Raises
    ------
    DeploymentError
        There is no such file, and it can't be made: no node would be let in.
    """
    file = keys / KNOWN_KEYS
    wanted = known_keys(keys, revoked)
    if file.exists() and file.read_bytes() == wanted:
        return
    try:
        write_bytes(file, wanted)
    except OSError as error:
        if not file.exists():
            raise DeploymentError(
                f"{file} is missing and can't be written ({error}): without it the fence lets "
                "nobody in. Copy the folder nodes of the server's bundle again, or run moonflower "
                "nodes sync as the bundle's owner"
            ) from None
        say(
            f"warning: {file} does not fit the keys beside it and can't be written ({error}): run "
            "moonflower nodes sync as the bundle's owner, or copy the whole folder again"
        )


def reload_fence(folder: Path) -> bool:
    """Let a running fence read keys and certificates again; return whether there is one.

    Parameters
    ----------
    folder : Path
        See :func:`scripts.moonflower.deployment.fence.fence_folder`.

    Raises
    ------
    DeploymentError
        It belongs to another user.
    """
    file = folder / "nginx.pid"
    try:
        process = psutil.Process(int(file.read_text()))
        # The number may be another program's by now.
        if process.name() != "nginx":
            return False
        process.send_signal(signal.SIGHUP)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return False
    except psutil.AccessDenied:
        raise DeploymentError(
            f"the fence, process {file.read_text().strip()}, belongs to another user: run this as "
            "that one, or restart the fence"
        ) from None
    return True

"""Which node has whose key.

A SuperLink knows its nodes by number and shows no keys. What registered them
(``scripts.moonflower.deployment.node_registry``) notes the number of each key beside its
database, and the key of the node NAME is the file ``NAME.pub`` in the server's bundle. Where the
start of a SuperLink names both in its environment, its ServerApps know who is who.
"""

from __future__ import annotations

from pathlib import Path

from common.files import DamagedFileError, read_json, sha256

KEYS_VARIABLE = "MOONFLOWER_NODE_KEYS"
"""Folder of the public keys, ``NAME.pub``."""

NUMBERS_VARIABLE = "MOONFLOWER_NODE_NUMBERS"
"""File of the numbers, by the keys' digests."""

FEDERATION = "federation"
"""Beside the digests of keys in that file: whose it is."""


def key_digest(file: Path) -> str:
    """Return the SHA-256 of a public key, without the remark behind it: the notes' key for it."""
    return sha256(b" ".join(file.read_bytes().split()[:2]))


def names_by_number(keys: Path, numbers: Path) -> dict[int, str]:
    """Return the names of the registered nodes by their numbers.

    Raises
    ------
    OSError
        A file is missing or can't be read.
    DamagedFileError
        The file of numbers is damaged.
    """
    noted = read_json(numbers)
    if not isinstance(noted, dict):
        raise DamagedFileError(f"{numbers} is damaged: it holds no numbers")
    # The folder's own listing, since a glob of one that can't be read is empty.
    files = [file for file in keys.iterdir() if file.suffix == ".pub"]
    names = {key_digest(file): file.stem for file in files}
    try:
        return {int(noted[key]): name for key, name in names.items() if key in noted}
    except (TypeError, ValueError) as error:
        raise DamagedFileError(f"{numbers} is damaged: {error}") from error

"""Decoded splits on disk: a new process maps them instead of decoding.

``<state>/prepared/<source>-<split>-<fingerprint>/`` holds ``x.npy``, ``y.npy``, ``keys.npy``
(:func:`common.data.splits.content_keys`), ``sites.npy`` where the data name sites, and, written
last, ``arrays.json`` with what the others must look like. The fingerprint covers the identity
(path, size, time of change) of the source's files, so changed data are decoded anew. What is
damaged is made anew too: a CRC-32 of each file is checked when a process opens it for the first
time, 15 ms for 100 MB.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays, checked
from common.data.errors import DataError
from common.data.sites import Sites
from common.data.sources import SOURCES, Split
from common.data.sources.base import Identity
from common.data.spec import data_spec
from common.data.splits import content_keys
from common.data.stored_files import UnusableCacheError, read_or_make
from common.files import write_file
from common.node import Folders

FORMAT = 2
"""Raised when a change of the code changes what is cached."""

_BLOCK = 2**20

_CHECKED: set[tuple[Path, int, int, int]] = set()
"""Path, inode, time of change and size of the files that this process has found whole."""


@dataclass(frozen=True)
class PreparedSplit:
    """A decoded split, mapped from disk.

    Attributes
    ----------
    arrays : Arrays
    keys : ndarray of uint64
        ``[n]``, :func:`common.data.splits.content_keys` of the examples.
    fingerprint : str
        Of its source.
    """

    arrays: Arrays
    keys: NDArray[np.uint64]
    fingerprint: str


def load_split(settings: DataSettings, folders: Folders, split: Split) -> PreparedSplit | None:
    """Return a split of ``data.source``, decoding it where no process has done so before.

    Returns
    -------
    PreparedSplit or None
        ``None`` for the test set of a site that has none.

    Raises
    ------
    DataError
        Missing, unreadable or unusable examples.
    """
    identity = _identity(settings, folders, split)
    if identity is None:
        return None
    spec = data_spec(settings)
    fingerprint = digest([FORMAT, split, spec.facts(), identity])
    folder = folders.prepared / f"{settings.source}-{split}-{fingerprint}"

    def make() -> None:
        _write(folder, _decode(settings, folders, split))

    arrays, keys = read_or_make(folder, lambda: _read(folder), make)
    return PreparedSplit(arrays, keys, fingerprint)


def decode_split(settings: DataSettings, folders: Folders, split: Split) -> Arrays | None:
    """Return a split as :func:`load_split` does, but decoded anew and with nothing written.

    Raises
    ------
    DataError
        Missing, unreadable or unusable examples.
    """
    if _identity(settings, folders, split) is None:
        return None
    return _decode(settings, folders, split)


def _identity(settings: DataSettings, folders: Folders, split: Split) -> Identity | None:
    try:
        return SOURCES[settings.source].identity(settings, folders.data, split)
    except OSError as error:
        raise DataError(
            f"the data folder {folders.data} can't be read: {error}. Mend its permissions, or "
            "choose another with MOONFLOWER_DATA_DIR (data-dir of the node config)"
        ) from error


def _decode(settings: DataSettings, folders: Folders, split: Split) -> Arrays:
    origin = f"{split} split of {settings.source!r} in {folders.data}"
    decoded = SOURCES[settings.source].decode(settings, folders.data, split)
    return checked(decoded, data_spec(settings), origin)


def digest(facts: object) -> str:
    """Return 16 hexadecimal digits that stand for ``facts`` (JSON)."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _write(folder: Path, arrays: Arrays) -> None:
    # Without its JSON the folder counts as missing, however far the writing came.
    (folder / "arrays.json").unlink(missing_ok=True)
    expected: dict[str, Any] = {}
    stored = {"x": arrays.x, "y": arrays.y, "keys": content_keys(arrays.x)}
    if arrays.sites:
        stored["sites"] = arrays.sites.of
        expected["site-names"] = list(arrays.sites.names)
    for name, array in stored.items():
        path = folder / f"{name}.npy"
        write_file(path, partial(np.save, arr=array, allow_pickle=False))
        expected[name] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "bytes": path.stat().st_size,
            "crc32": _crc32(path),
        }
    write_file(folder / "arrays.json", lambda file: file.write(json.dumps(expected).encode()))


def _read(folder: Path) -> tuple[Arrays, NDArray[np.uint64]]:
    def mapped(name: str) -> NDArray[Any]:
        return _map(folder / f"{name}.npy", expected[name])

    try:
        expected = json.loads((folder / "arrays.json").read_text())
        sites = None
        if "sites" in expected:
            sites = Sites(tuple(expected["site-names"]), mapped("sites"))
        return Arrays(mapped("x"), mapped("y"), sites), mapped("keys")
    except FileNotFoundError as error:
        if (folder / "arrays.json").exists():
            raise UnusableCacheError(f"{error.filename} is missing") from error
        raise
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise UnusableCacheError(str(error)) from error


def _map(path: Path, expected: dict[str, Any]) -> NDArray[Any]:
    status = path.stat()
    if status.st_size != expected["bytes"]:
        raise UnusableCacheError(
            f"{path.name} has {status.st_size} bytes instead of {expected['bytes']}"
        )
    seen = (path, status.st_ino, status.st_mtime_ns, status.st_size)
    if seen not in _CHECKED:
        if _crc32(path) != expected["crc32"]:
            raise UnusableCacheError(f"{path.name} is not what was written")
        _CHECKED.add(seen)
    # mmap refuses to map nothing, and an empty array is read in no time.
    empty = 0 in expected["shape"]
    array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    if list(array.shape) != expected["shape"] or str(array.dtype) != expected["dtype"]:
        raise UnusableCacheError(
            f"{path.name} is {array.dtype} {list(array.shape)} instead of {expected['dtype']} "
            f"{expected['shape']}"
        )
    return array


def _crc32(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found

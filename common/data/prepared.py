"""Decoded splits on disk: a new process maps them instead of decoding.

``<state>/prepared/<source>-<split>-<fingerprint>/`` holds ``x.npy``, ``y.npy`` and, written last,
``arrays.json`` with what the other two must look like. The fingerprint covers the identity (path,
size, time of change) of the source's files, so changed data are decoded anew.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays, checked
from common.data.errors import DataError
from common.data.files import UnusableCacheError, read_or_make, write_whole
from common.data.sources import SOURCES, Split
from common.data.sources.base import Identity
from common.data.spec import data_spec
from common.node import Folders

FORMAT = 1
"""Raised when a change of the code changes what is cached."""


@dataclass(frozen=True)
class PreparedSplit:
    """A decoded split, mapped from disk, and the fingerprint of its source."""

    arrays: Arrays
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
    fingerprint = digest([FORMAT, settings.source, split, spec.shape, spec.num_classes, identity])
    folder = folders.prepared / f"{settings.source}-{split}-{fingerprint}"

    def make() -> None:
        _write(folder, _decode(settings, folders, split))

    return PreparedSplit(read_or_make(folder, lambda: _read(folder), make), fingerprint)


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
    expected = {}
    for name, array in (("x", arrays.x), ("y", arrays.y)):
        path = folder / f"{name}.npy"
        write_whole(path, partial(np.save, arr=array, allow_pickle=False))
        expected[name] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "bytes": path.stat().st_size,
        }
    write_whole(folder / "arrays.json", lambda file: file.write(json.dumps(expected).encode()))


def _read(folder: Path) -> Arrays:
    try:
        expected = json.loads((folder / "arrays.json").read_text())
        return Arrays(_map(folder / "x.npy", expected["x"]), _map(folder / "y.npy", expected["y"]))
    except FileNotFoundError as error:
        if (folder / "arrays.json").exists():
            raise UnusableCacheError(f"{error.filename} is missing") from error
        raise
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise UnusableCacheError(str(error)) from error


def _map(path: Path, expected: dict[str, Any]) -> NDArray[Any]:
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise UnusableCacheError(f"{path.name} has {size} bytes instead of {expected['bytes']}")
    # mmap refuses to map nothing, and an empty array is read in no time.
    empty = 0 in expected["shape"]
    array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    if list(array.shape) != expected["shape"] or str(array.dtype) != expected["dtype"]:
        raise UnusableCacheError(
            f"{path.name} is {array.dtype} {list(array.shape)} instead of {expected['dtype']} "
            f"{expected['shape']}"
        )
    return array

"""Tensors in atomic, checksummed files: safetensors, no pickle. Other files: `common.files`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from common.files import DamagedFileError, write_bytes

_START = b'{"__metadata__":{"moonflower":"'
_DIGEST = slice(8 + len(_START), 8 + len(_START) + 64)


def pack_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> bytes:
    """Return a safetensors file whose SHA-256 another file is to note, as ``model.json`` does.

    A file that stands alone is written by :func:`write_tensors`. The same tensors and facts give
    the same bytes. Any safetensors reader opens the file: facts and the order of the names are in
    one metadata entry, ``moonflower``. (One only, because safetensors writes several in random
    order.)

    Parameters
    ----------
    tensors : Mapping[str, Tensor]
        Any shapes, dtypes and devices; views and shared memory are written out in full.
    facts : Mapping[str, str]
        Short texts to keep with them.

    Raises
    ------
    ValueError
        A tensor has the name that the format reserves.
    """
    if "__metadata__" in tensors:
        raise ValueError(
            "a tensor is named '__metadata__', which the safetensors format reserves: rename it"
        )
    owned = {
        # A copy of each, since safetensors refuses tensors that share memory.
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in tensors.items()
    }
    # The zeros are the place of a digest.
    note = "0" * 64 + json.dumps({"order": list(tensors), "facts": dict(facts)})
    return safetensors.torch.save(owned, {"moonflower": note})


def unpack_tensors(blob: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors (on the CPU, in their order) and facts of :func:`pack_tensors`.

    Its SHA-256 is the caller's to check, before.

    Raises
    ------
    DamagedFileError
        It is something else.
    """
    try:
        tensors = safetensors.torch.load(blob)
        note = _note(blob[8 : 8 + _header_length(blob)])
        return {name: tensors[name] for name in note["order"]}, note["facts"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedFileError(f"it can't be read ({error})") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write :func:`pack_tensors`, with its own SHA-256 in it, as :func:`write_bytes` does."""
    blob = pack_tensors(tensors, facts)
    digest = _sha256_around_digest(blob)
    write_bytes(path, blob[: _DIGEST.start] + digest + blob[_DIGEST.stop :])


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a file of :func:`write_tensors`.

    Returns
    -------
    tensors : dict[str, Tensor]
        On the CPU, in the order in which they were given, bit for bit.
    facts : dict[str, str]

    Raises
    ------
    DamagedFileError
        A byte differs or is missing; the message names the file.
    OSError
        The file is missing or can't be read.
    """
    blob = path.read_bytes()
    try:
        if blob[8 : _DIGEST.start] != _START:
            raise DamagedFileError("it does not begin like a file of Moonflower's")
        if blob[_DIGEST] != _sha256_around_digest(blob):
            raise DamagedFileError("its SHA-256 differs from the one noted in it")
        return unpack_tensors(blob)
    except DamagedFileError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error


def read_facts(path: Path) -> dict[str, str]:
    """Return the facts of a file of :func:`write_tensors` without reading or checking its tensors.

    Raises
    ------
    DamagedFileError
        The head of the file is damaged; the message names the file.
    OSError
        The file is missing or can't be read.
    """
    with path.open("rb") as file:
        length = _header_length(file.read(8))
        if length > path.stat().st_size:
            raise DamagedFileError(f"{path} is damaged: its header is longer than the file")
        header = file.read(length)
    try:
        return dict(_note(header)["facts"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged: it has no readable header") from error


def _header_length(blob: bytes) -> int:
    return int.from_bytes(blob[:8], "little")


def _note(header: bytes) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(json.loads(header)["__metadata__"]["moonflower"][64:])
    return note


def _sha256_around_digest(blob: bytes) -> bytes:
    digest = hashlib.sha256(memoryview(blob)[: _DIGEST.start])
    digest.update(memoryview(blob)[_DIGEST.stop :])
    return digest.hexdigest().encode()

"""Atomic, checksummed files: safetensors and JSON, no pickle.

A file appears whole or not at all, also when the power fails: it is written under another
name in the same folder, forced to disk, renamed, and then the folder is forced to disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

UNFINISHED = ".unfinished"
"""How the name of a file ends that has not been renamed yet."""

_START = b'{"__metadata__":{"moonflower":"'
_DIGEST = slice(8 + len(_START), 8 + len(_START) + 64)


class DamagedFileError(ValueError):
    """A file is truncated, altered or not in the expected format; the message names it."""


def write_bytes(path: Path, blob: bytes) -> None:
    """Write ``blob`` to ``path``, whole or not at all, replacing what was there.

    Parameters
    ----------
    path : Path
        Missing folders above it are created.
    blob : bytes

    Raises
    ------
    OSError
        The disk is full, read-only or failing. What was at ``path`` before is intact, unless
        only the last step failed, the flush of the folder: then ``path`` is whole and new.
    """
    make_folder(path.parent)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with unfinished.open("xb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        # os.replace rather than Path.replace: tests put a failing disk in its place.
        os.replace(unfinished, path)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    flush_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and those above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    flush_folder(folder.parent)


def flush_folder(folder: Path) -> None:
    """Force the entries of ``folder`` (created, renamed, deleted files) to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Delete what a killed process left half-written in ``folder``.

    Call it only where no other process writes into ``folder``.
    """
    for path in folder.glob(f".*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def pack_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> bytes:
    """Return a safetensors file that carries its own SHA-256.

    The same tensors and facts give the same bytes. Any safetensors reader opens the file:
    digest, facts and the order of the names are in one metadata entry, ``moonflower``.
    (One entry only, because safetensors writes several in random order.)

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
    note = "0" * 64 + json.dumps({"order": list(tensors), "facts": dict(facts)})
    blob = safetensors.torch.save(owned, {"moonflower": note})
    digest = _sha256_around_digest(blob).encode()
    return blob[: _DIGEST.start] + digest + blob[_DIGEST.stop :]


def unpack_tensors(blob: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors (on the CPU, in their order) and facts of :func:`pack_tensors`.

    Raises
    ------
    DamagedFileError
        A byte differs or is missing.
    """
    start = blob[8 : _DIGEST.start]
    if start != _START:
        raise DamagedFileError("it does not begin like a file of Moonflower's")
    if blob[_DIGEST] != _sha256_around_digest(blob).encode():
        raise DamagedFileError("its SHA-256 differs from the one noted in it")
    try:
        tensors = safetensors.torch.load(blob)
        note = _note(blob[8 : 8 + _header_length(blob)])
        return {name: tensors[name] for name in note["order"]}, note["facts"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedFileError(f"it can't be read ({error})") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write :func:`pack_tensors` to ``path`` as :func:`write_bytes` does."""
    write_bytes(path, pack_tensors(tensors, facts))


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
        The content is not what was written; the message names the file.
    OSError
        The file is missing or can't be read.
    """
    try:
        return unpack_tensors(path.read_bytes())
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


def set_aside(path: Path) -> Path:
    """Rename a damaged file to ``<name>.damaged-<n>``, n from 1, and return its new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    flush_folder(path.parent)
    return aside


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as indented JSON, as :func:`write_bytes` does.

    NaN and Infinity are written as Python does (RFC 8259 knows none): a run that diverged must
    still be able to write its results.
    """
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    DamagedFileError
        It isn't JSON in UTF-8; the message names the file.
    OSError
        The file is missing or can't be read.
    """
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:  # of json and of UTF-8
        raise DamagedFileError(f"{path} is damaged: it is not JSON ({error})") from error


def append_line(path: Path, text: str) -> None:
    """Append ``text`` and a line end, and force them to disk.

    A line that an earlier crash cut short is ended first, so that only that one is lost.

    Raises
    ------
    ValueError
        ``text`` has a line end in it.
    OSError
        The disk is full, read-only or failing.
    """
    if "\n" in text:
        raise ValueError(f"a line for {path.name} has a line end in it: {text!r}; append each line")
    make_folder(path.parent)
    is_new = not path.exists()
    with path.open("a+b") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                text = "\n" + text
        file.write(f"{text}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        flush_folder(path.parent)


def sha256(blob: bytes) -> str:
    """Return the SHA-256 of ``blob`` in hexadecimal."""
    return hashlib.sha256(blob).hexdigest()


def _header_length(blob: bytes) -> int:
    return int.from_bytes(blob[:8], "little")


def _note(header: bytes) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(json.loads(header)["__metadata__"]["moonflower"][64:])
    return note


def _sha256_around_digest(blob: bytes) -> str:
    digest = hashlib.sha256(memoryview(blob)[: _DIGEST.start])
    digest.update(memoryview(blob)[_DIGEST.stop :])
    return digest.hexdigest()

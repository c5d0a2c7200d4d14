"""Files and folders that appear whole or not at all, also when the power fails.

Each is written under another name beside its place, forced to disk, renamed, and then the folder
above is forced to disk. Nothing here needs torch: processes that stay for months read this.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

UNFINISHED = ".unfinished"
"""How the name of a file ends that has not been renamed yet."""


class DamagedFileError(ValueError):
    """A file is truncated, altered or not in the expected format; the message names it."""


def write_bytes(path: Path, blob: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Write ``blob`` to ``path`` as :func:`write_file` does."""
    write_file(path, lambda file: file.write(blob), durable=durable, mode=mode)


def write_file(
    path: Path,
    write: Callable[[BinaryIO], object],
    *,
    durable: bool = True,
    mode: int | None = None,
) -> None:
    """Let ``write`` fill a file that appears at ``path`` whole or not at all.

    Parameters
    ----------
    path : Path
        Missing folders above it are created; what was there is replaced.
    write : callable
        Gets the open file.
    durable : bool
        Whether it is forced to disk. If not, it may be lost when the power fails, but is whole
        whenever a process looks.
    mode : int, optional
        The file's permissions, whatever the umask is; None: as the umask says.

    Raises
    ------
    OSError
        The disk is full, read-only or failing. What was at ``path`` before is intact, unless
        only the last step failed, the flush of the folder: then ``path`` is whole and new.
    """
    make_folder(path.parent)
    unfinished = _unfinished(path)
    try:
        with unfinished.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        # os.replace rather than Path.replace: tests put a failing disk in its place.
        os.replace(unfinished, path)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    if durable:
        flush_folder(path.parent)


def write_folder(folder: Path, blobs: Mapping[str, bytes]) -> None:
    """Write files into ``folder``, all or none, replacing the folder that was there.

    Should the process die between the two renames of a replacement, the old folder is still there
    as :func:`previous_folder`, where the next call and :func:`recover_folder` find it.

    Parameters
    ----------
    folder : Path
        Missing folders above it are created.
    blobs : Mapping[str, bytes]
        By file name.

    Raises
    ------
    OSError
        The disk is full, read-only or failing. The folder that was there before is intact.
    """
    make_folder(folder.parent)
    recover_folder(folder)
    new = _unfinished(folder)
    try:
        for name, blob in blobs.items():
            write_bytes(new / name, blob)
        # os.rename rather than Path.rename: tests put a failing disk in its place.
        if folder.exists():
            os.rename(folder, previous_folder(folder))  # noqa: PTH104
        os.rename(new, folder)  # noqa: PTH104
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        with suppress(OSError):
            recover_folder(folder)
        raise
    flush_folder(folder.parent)
    shutil.rmtree(previous_folder(folder), ignore_errors=True)


def previous_folder(folder: Path) -> Path:
    """Return where the old folder is while :func:`write_folder` replaces it."""
    return folder.with_name(f"{folder.name}.previous")


def recover_folder(folder: Path) -> None:
    """Finish what a killed :func:`write_folder` left: one whole folder, or none, nothing beside.

    Nobody else may be writing there.
    """
    previous = previous_folder(folder)
    if previous.exists() and not folder.exists():
        os.rename(previous, folder)  # noqa: PTH104
        flush_folder(folder.parent)
    shutil.rmtree(previous, ignore_errors=True)
    for unfinished in folder.parent.glob(f".{folder.name}.*{UNFINISHED}"):
        shutil.rmtree(unfinished, ignore_errors=True)


def remove(path: Path) -> None:
    """Delete a file or a folder, durably; half of a folder is never to be seen under its name."""
    if path.is_dir():
        doomed = _unfinished(path)
        path.rename(doomed)
        flush_folder(path.parent)
        with suppress(FileNotFoundError):
            shutil.rmtree(doomed)
    elif path.exists():
        path.unlink(missing_ok=True)
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
    """Delete what a killed process left half-written, or half-deleted, in ``folder``.

    Call it only where no other process writes into ``folder``.
    """
    for path in folder.glob(f".*{UNFINISHED}"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


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
    write_bytes(path, json_bytes(value))


def json_bytes(value: object) -> bytes:
    """Return ``value`` as :func:`write_json` writes it."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


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


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")

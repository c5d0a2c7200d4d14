"""Folders: can they be written durably, and is there room?"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from common.files import write_bytes
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

LITTLE, TOO_LITTLE = 5e9, 0.2e9
"""Free bytes below which a folder is warned of, and below which it fails."""


def check_folder(what: str, folder: Path, variable: str) -> Iterator[Finding]:
    """Write, force to disk, rename and lock a file; look at the free space.

    A folder that is missing is looked for above: starting makes it, this does not.
    """
    present = folder
    while not present.exists() and present != present.parent:
        present = present.parent
    problem = _write_problem(present)
    if problem:
        found = f"{present} can't be used by {_user()}: {problem}"
        yield failed(what, found, f"make it writable for that user, or change {variable}")
        return
    note = "" if present == folder else f" (will be made below {present})"
    free = shutil.disk_usage(present).free
    found = f"{folder}{note}: {_user()} can write, {free / 1e9:.1f} GB free"
    if free < TOO_LITTLE:
        yield failed(what, found, "free some space: a round's files would not fit")
    elif free < LITTLE:
        yield warning(what, found, "free some space; docs/operations.md says what takes how much")
    else:
        yield ok(what, found)


def _write_problem(folder: Path) -> str:
    from filelock import FileLock, Timeout

    if not folder.is_dir():
        return "it is no folder"
    name = f".moonflower-doctor-{secrets.token_hex(4)}"
    path, lock = folder / name, folder / f"{name}.lock"
    try:
        write_bytes(path, b"whole or not at all")  # fsync, rename, fsync of the folder
        with FileLock(lock, timeout=1.0):
            pass
    except (OSError, NotImplementedError, Timeout) as error:
        return str(error) or "it can't be locked"
    finally:
        path.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return f"user {os.getuid()}"

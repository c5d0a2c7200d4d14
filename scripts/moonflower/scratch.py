"""A temporary folder that Ray's sockets fit into."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.moonflower.interruption import signals_held_back

LONGEST_PARENT = 18
"""A Unix socket's path holds at most 103 characters (macOS). Ray's own part,
``/ray/session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store.0``, takes up to 73 and
this folder's name 12."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for the block, in the system's temporary folder or, if too deep, ``/tmp``."""
    parent = tempfile.gettempdir()
    if len(parent) > LONGEST_PARENT:
        parent = "/tmp"  # noqa: S108 (mkdtemp makes a name of its own, for this user only)
    folder = Path(tempfile.mkdtemp(prefix="mf-", dir=parent))
    try:
        yield folder
    finally:
        with signals_held_back():
            shutil.rmtree(folder, ignore_errors=True)

"""Cache files: made once by whichever process is first, whole or not at all, checked on reading."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from common.data.errors import DataError
from common.logs import NAME

LOCK_TIMEOUT = 1800.0
"""Seconds to wait for another process that prepares the same data."""

_LOG = logging.getLogger(NAME)
_T = TypeVar("_T")


class UnusableCacheError(Exception):
    """A cached file is damaged; the message says how. It is made anew."""


def read_or_make(path: Path, read: Callable[[], _T], make: Callable[[], None]) -> _T:
    """Return ``read()``, after ``make()`` where the cache is missing or damaged.

    Parameters
    ----------
    path : Path
        What is cached; the lock lies next to it, so that one process makes it while the others
        wait. The lock ends with the process that holds it.
    read : callable
        Raises ``FileNotFoundError`` where nothing is cached and :class:`UnusableCacheError` where
        the cache is damaged.
    make : callable
        Writes the cache.

    Raises
    ------
    DataError
        The folder can't be written, or another process holds the lock too long.
    """
    try:
        return read()
    except (OSError, UnusableCacheError):
        pass  # looked at again under the lock: another process may be mending it right now
    from filelock import FileLock, Timeout

    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=LOCK_TIMEOUT):
            try:
                return read()
            except FileNotFoundError:
                pass
            except UnusableCacheError as damage:
                _LOG.warning("prepared data %s are damaged (%s): making them anew", path, damage)
            make()
            return read()
    except Timeout:
        raise DataError(
            f"waited {LOCK_TIMEOUT:.0f} s for another process that prepares {path}: end that "
            f"process if it hangs (lock file: {lock})"
        ) from None
    except (OSError, UnusableCacheError) as error:
        raise DataError(
            f"prepared data can't be kept in {path}: {error}. Free some space, make the folder "
            "writable, or choose another MOONFLOWER_STATE_DIR (state-dir of the node config)"
        ) from error

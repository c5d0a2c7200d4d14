"""Find and end every process that this one started, in whatever session it is.

Ray starts its servers in sessions of their own, and rewrites the memory that
``/proc/PID/environ`` shows, so neither a process group nor a mark in the environment finds
them all. On Linux this process becomes the one that orphans are handed to, so that all of
them stay below it in the tree; elsewhere those whose parent has ended are not found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(*, gently: bool = False) -> None:
    """Ask the kernel to end this process when its parent is gone (Linux).

    To be called in a child that was just forked.

    Parameters
    ----------
    gently : bool
        By SIGTERM, for a child that ends what it has started itself; else by SIGKILL.
    """
    if sys.platform == "linux":
        number = signal.SIGTERM if gently else signal.SIGKILL
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def descendants(root: int) -> set[int]:
    """Return the ids of all living processes below ``root``; zombies are not living."""
    found = set()
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(root).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process.pid)
    return found


def end_descendants(
    grace: float = 5.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """End everything below this process: SIGTERM, and after ``grace`` seconds SIGKILL.

    Returns when two looks in a row find nothing, since a process that ends may have started
    another one just before.
    """
    begin = clock()
    asked: set[int] = set()
    quiet = 0
    while quiet < 2:
        living = descendants(os.getpid())
        _reap()
        quiet = 0 if living else quiet + 1
        if clock() - begin < grace:
            _signal(living - asked, signal.SIGTERM)
            asked |= living
        else:
            _signal(living, signal.SIGKILL)
        sleep(0.05)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap() -> None:
    """Take the exit codes of ended children, adopted ones included."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass

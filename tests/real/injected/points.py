"""Where a fault strikes: each once, at a point of a client's or the server's round."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .plan import FAULTS, MARKS

SERVER = "server"


def reach(point: str, who: str, server_round: int, folder: Path | None = None) -> str:
    """Let the fault strike that waits here, and return its action ("" if there is none).

    ``kill`` does not return. ``pause`` returns once the test has written the mark's ``.go``.
    ``fill`` and ``free`` fill the disk of ``folder`` and free it. What else the action says is
    left to the caller.
    """
    for name, *wanted, action in FAULTS:
        if wanted == [point, who, server_round] and _first_time(MARKS / name):
            _strike(action, MARKS / name, folder)
            return str(action)
    return ""


def _first_time(mark: Path) -> bool:
    try:
        with mark.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _strike(action: str, mark: Path, folder: Path | None) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "pause":
        while not mark.with_suffix(".go").exists():
            time.sleep(0.05)
    elif action == "fill" and folder is not None:
        _fill(folder / "filler")
    elif action == "free" and folder is not None:
        (folder / "filler").unlink()


def _fill(filler: Path) -> None:
    block = b"\0" * 65536
    with filler.open("wb", buffering=0) as file:
        while block:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]  # down to the last byte

"""``moonflower`` commands that start Ray, and a watch that nothing of it is left behind (Linux)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts.moonflower.processes import adopt_orphans, descendants, end_descendants
from tests.settings import ROOT

MAIN = "from scripts.moonflower import main; main()"
_PR_SET_CHILD_SUBREAPER = 36


class Command:
    """Starts ``moonflower``; in :func:`watched`, what it leaves behind fails the test."""

    def __init__(self) -> None:
        # Not below tmp_path: Ray's sockets need a short path.
        self.scratch = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
        self._before = descendants(os.getpid())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command; what it prints can be read from the process."""
        return subprocess.Popen(
            # As a terminal's command: what a shell starts in the background ignores SIGINT.
            ["env", "--default-signal=INT", sys.executable, "-c", MAIN, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "TMPDIR": str(self.scratch),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the command to its end; return exit code and everything printed."""
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=900)
        return process.returncode, out

    def left(self, patience: float = 0.0) -> list[str]:
        """Return the command lines of what is still there after so many seconds at most."""
        deadline = time.monotonic() + patience
        while pids := descendants(os.getpid()) - self._before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        lines = []
        for pid in pids:
            with suppress(OSError):  # it has just ended
                lines.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        return lines


@contextmanager
def watched() -> Iterator[Command]:
    """Give a command; afterwards, fail if a process of it was left behind."""
    adopt_orphans()  # what is left behind becomes a child of this process
    command = Command()
    try:
        yield command
    finally:
        left = command.left()
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if left:
            end_descendants()
        shutil.rmtree(command.scratch)
    assert left == []

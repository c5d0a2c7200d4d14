"""The processes of one part of a federation, found by a mark in their environment.

Flower's processes start others, which outlive them for a moment; the mark is inherited, so none
is missed (Linux).
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

MARK = "MOONFLOWER_TEST_GROUP"
SLOW = 900.0
"""Seconds that anything may take on a busy machine before a test gives up."""


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now.

    It is below those that Linux gives to connections (32768 and up), so that no connection takes
    it while what listens there is away; and drawn, so that tests side by side don't meet.
    """
    while True:
        port = secrets.randbelow(20_000) + 12_000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(
    condition: Callable[[], object], what: str, seconds: float, dump: Callable[[], str] = str
) -> float:
    """Wait until ``condition()`` is true, and return how long it took, in seconds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"{what}: not within {seconds:.0f} s\n{dump()}")
        time.sleep(0.1)
    return time.monotonic() - began


@dataclass
class Group:
    """A process and all that it starts.

    Attributes
    ----------
    name : str
        Unique on this machine.
    log : Path
        Receives what the process prints.
    """

    name: str
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the process."""
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                command,
                env={**env, MARK: self.name},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether the first process runs."""
        return self.process is not None and self.process.poll() is None

    def pids(self, command: str = "") -> list[int]:
        """Return the living processes of the group, those with ``command`` in their command."""
        wanted = f"{MARK}={self.name}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            with suppress(OSError):
                marked = wanted in (folder / "environ").read_bytes().split(b"\0")
                if marked and command.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def signal(self, number: signal.Signals, command: str = "") -> None:
        """Send a signal to all of them."""
        for pid in self.pids(command):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill all of them at once, as when the power fails."""
        while self.pids():
            self.signal(signal.SIGKILL)
            self._reap()
        self._reap()

    def kill_first(self) -> None:
        """Kill the process that was started and leave its children to themselves."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _reap(self) -> None:
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=0.1)

    def printed(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

"""Whether a node that lives is of use: decided by what its process does, on disk, by itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.probe import probe
from scripts.moonflower.deployment.supernode_process import HEARTBEAT, REQUEST
from scripts.moonflower.deployment.supervision import Ending, Verdict
from scripts.moonflower.processes import descendants

LOOK_SECONDS = 10.0
"""Between two looks."""

OFFLINE, STUCK = 180.0, 300.0
"""Seconds without an accepted heartbeat, or without a request, after which a node may be stuck."""

_ASLEEP = 3 * LOOK_SECONDS


@dataclass
class Watch:
    """Tells when signs of life stay away for good.

    Attributes
    ----------
    sign : Callable[[], float or None]
        Returns when there was a sign last, on whatever clock; None: there was none yet.
    expected : Callable[[], bool]
        Whether one is to be expected now. Only asked after a long silence.
    silence : float
        Seconds without a sign after which that is asked.
    waiting : float
        Seconds for which a sign has to be expected all the time until it is given up.
    clock : Callable[[], float]
    """

    sign: Callable[[], float | None]
    expected: Callable[[], bool]
    silence: float
    waiting: float = 60.0
    clock: Callable[[], float] = time.monotonic
    _seen: float | None = field(default=None, init=False)
    _silent_since: float = field(init=False)
    _looked: float = field(init=False)
    _expected_since: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._silent_since = self._looked = self.clock()

    def given_up(self) -> bool:
        """Look; return whether the process should be started again."""
        now = self.clock()
        sign = self.sign()
        # After a pause of its own (a machine that was suspended), it can't know what it missed.
        if sign != self._seen or now - self._looked > _ASLEEP:
            self._seen, self._silent_since, self._expected_since = sign, now, None
        silent = now - self._silent_since >= self.silence
        if not silent or not self.expected():
            self._expected_since = None
        elif self._expected_since is None:
            self._expected_since = now
        self._looked = self.clock()  # asking may take long
        return self._expected_since is not None and now - self._expected_since >= self.waiting


def watch(home: Path, superlink: str, ca: Path | None, ended: threading.Event) -> Ending | None:
    """Look at a running SuperNode until it ends, or lives and is of no use.

    Parameters
    ----------
    home : Path
        Flower's, where its process leaves its signs.
    superlink : str
        ``host:port`` of the server.
    ca : Path or None
        See :func:`probe`.
    ended : threading.Event
        Says that the process has ended.
    """

    def server_answers() -> bool:
        try:
            return probe(superlink, ca) is None
        except DeploymentError:  # a bundle that is being replaced
            return False

    # A server that is away is waited for by Flower itself, and gives up a node after 60 s.
    heartbeats = Watch(lambda: _modified(home / HEARTBEAT), server_answers, OFFLINE)
    # The main loop asks for messages every 3 s, except while it waits for a ClientApp.
    requests = Watch(lambda: _modified(home / REQUEST), _no_client_app_runs, STUCK)
    while not ended.wait(LOOK_SECONDS):
        if heartbeats.given_up():
            return Ending(
                Verdict.RESTART,
                f"the server accepted no heartbeat of this node for {OFFLINE:.0f} s, although it "
                "answers",
            )
        if requests.given_up():
            return Ending(
                Verdict.RESTART,
                f"flower-supernode asked for nothing for {STUCK:.0f} s, and no ClientApp runs; it "
                "may wait for the rest of the reply of one that was killed",
            )
    return None


def _no_client_app_runs() -> bool:
    """Whether nothing trains or evaluates below this process; False where that can't be seen."""
    commands = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            commands.append(Path("/proc", str(pid), "cmdline").read_bytes())
    return bool(commands) and not any(b"flwr-clientapp" in command for command in commands)


def _modified(file: Path) -> float | None:
    """Return when a file was modified, in seconds; None: it is not there."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return None

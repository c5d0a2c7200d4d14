"""Whether a node is online: decided by the heartbeats that the server accepted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LOOK_SECONDS = 10.0
"""Between two looks."""

_ASLEEP = 3 * LOOK_SECONDS


@dataclass
class Watch:
    """Tells when a node whose process lives is offline for good.

    Heartbeats come from a thread of their own every 20 s, whether the node trains or idles. A
    server that is away is waited for by Flower itself; so silence counts only while the server
    answers others.

    Attributes
    ----------
    beat : Callable[[], float or None]
        Returns when the last heartbeat was accepted, on whatever clock; None: none was yet.
    server_answers : Callable[[], bool]
        Whether the server can be reached from here. Only asked after a long silence.
    silence : float
        Seconds without a heartbeat after which the server is asked; it gives up a node after 60.
    answering : float
        Seconds for which the server has to answer meanwhile: a node needs up to 25 to notice.
    clock : Callable[[], float]
    """

    beat: Callable[[], float | None]
    server_answers: Callable[[], bool]
    silence: float = 180.0
    answering: float = 60.0
    clock: Callable[[], float] = time.monotonic
    _heard: float | None = field(default=None, init=False)
    _since: float = field(init=False)
    _looked: float = field(init=False)
    _answers_since: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._since = self._looked = self.clock()

    def offline(self) -> bool:
        """Look; return whether the node should be started again."""
        now = self.clock()
        if now - self._looked > _ASLEEP:
            # This process was stopped too: it can't know what it missed.
            self._since, self._answers_since = now, None
        self._looked = now
        beat = self.beat()
        if beat != self._heard:
            self._heard, self._since, self._answers_since = beat, now, None
        if now - self._since < self.silence:
            return False
        if not self.server_answers():
            self._answers_since = None
        elif self._answers_since is None:
            self._answers_since = now
        # A look at the server may take long.
        self._looked = self.clock()
        return self._answers_since is not None and now - self._answers_since >= self.answering


def modified(file: Path) -> float | None:
    """Return when a file was modified, in seconds; None: it is not there."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return None

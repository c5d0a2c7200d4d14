"""``activity.json``: what the server is doing now, and why it stopped, for whoever looks on.

Nothing is resumed from it. It is whole or not there, but not forced to disk as results are, so
that it costs a round nothing that shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.files import json_bytes, write_bytes
from common.logs import NAME
from server_app.experiment.layout import ACTIVITY_FILE

log = logging.getLogger(NAME)

LONGEST_REASON = 4000
"""Characters: an error may quote every client."""


class Activity:
    """Writes an experiment's ``activity.json``.

    From the first round on it says ``round``, the one that is being played, ``clients``, the names
    that are connected, and ``time``, when that round began. Where the run ends before its last
    round, also ``ended``: why, or "" where nobody said. A run that has finished leaves none, and
    one that was killed leaves one without ``ended``.

    A disk that refuses it is worth a warning: the round's results will say the rest.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ACTIVITY_FILE
        self._now: dict[str, Any] = {}
        self._warned = False

    def begin_round(self, server_round: int, clients: Sequence[str]) -> None:
        """Say which round is played now, and who is connected."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        self._now = {"round": server_round, "clients": list(clients), "time": time}
        self._write(self._now)

    def stop(self, why: str) -> None:
        """Say why the run ends before its last round; what was said first stays."""
        if self._now:
            self._write({**self._now, "ended": why[:LONGEST_REASON]})
            self._now = {}

    def finish(self) -> None:
        """Take the file away: the run is over."""
        self._now = {}
        self._attempt(lambda: self._path.unlink(missing_ok=True))

    def _write(self, content: Mapping[str, Any]) -> None:
        self._attempt(lambda: write_bytes(self._path, json_bytes(content), durable=False))

    def _attempt(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            if not self._warned:
                log.warning("%s does not say what goes on: %s", self._path, error)
            self._warned = True

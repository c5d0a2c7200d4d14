"""How long an answer of the SuperLink may be, looked at before it is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx


class TooLargeError(Exception):
    """The SuperLink was about to send more bytes than were asked for."""


class AnswerLimit:
    """Looks at the length of what the SuperLink answers before it is read.

    Flower's client reads an answer whole. Other threads (heartbeats, logs) use the same client,
    and are not limited.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def of(self, most_bytes: int) -> Iterator[None]:
        """Let an answer to this thread be so long."""
        self._local.bytes = most_bytes
        try:
            yield
        finally:
            del self._local.bytes

    def check(self, response: httpx.Response) -> None:
        """Raise if the answer is longer; a hook of httpx, called before the body is read."""
        most = getattr(self._local, "bytes", None)
        length = response.headers.get("content-length")
        if most is not None and length is not None and int(length) > most:
            raise TooLargeError(length)

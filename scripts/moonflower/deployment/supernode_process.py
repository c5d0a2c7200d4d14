"""Flower's SuperNode in a process that lives through faults of the line, or ends.

What ``flower-supernode`` of flwr 1.42 does by itself:

* Its main loop asks for messages every 3 s. It waits out 502, 503, 504 and connections that fail,
  but no other status, and no error whose text has "ssl", "tls" or "certificate" in it, as when a
  connection is accepted and closed before TLS began. Then it logs the error and returns, while the
  thread of its own HTTP interface keeps the process alive: offline for good.
* What it could not send for such a reason, it throws away, after hours of training.
* The thread of its heartbeats ends with the first such status, and the server counts it as offline.

So such a fault is shown to Flower as the kind that it waits out, for ``PATIENCE`` seconds; and when
its main loop has returned or one of its threads has died all the same, the process ends, and its
supervisor starts it again. Each heartbeat that the server accepted is noted in a file: there the
supervisor and the health check see whether the node is online. What its main loop sends is noted
too: it waits for ever for the rest of a reply whose ClientApp was killed while handing it over.

Nothing of Flower is touched but the class of its HTTP client, httpx's own.
"""

from __future__ import annotations

import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx

from scripts.moonflower.deployment.first_message import causes

PROGRAM = Path(__file__).parent / "programs" / "flower-supernode"
"""To be run by a Python that can import this module."""

HEARTBEAT = "heartbeat"
"""A file in Flower's home; it was modified when the server last accepted a heartbeat."""

REQUEST = "request"
"""A file beside it; it was modified when the main loop last wanted something of the server."""

GAVE_UP = "moonflower: the SuperNode can't go on: "
"""Begins the line that says why a process ended; the supervisor reads it."""

PATIENCE = 120.0
"""Seconds for which one kind of request may fail without Flower being told the reason."""

_HEARTBEAT_PATH = "/v1/fleet/send-node-heartbeat"
_WAITED_OUT_BY_FLOWER = {502, 503, 504}
_SHOWN_INSTEAD = 503
_TOO_EARLY_OR_TOO_MUCH = {408, 425, 429}
_FATAL_WORDS = ("certificate", "ssl", "tls")
_UNAUTHORIZED = httpx.codes.UNAUTHORIZED


class Faults:
    """Since when which requests fail.

    Parameters
    ----------
    clock : Callable[[], float]
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def waited_out(self, path: str, what: str) -> bool:
        """Note a failure; return whether it is to be waited out, which is said at the first one."""
        now = self._clock()
        if path not in self._since:
            _say(f"moonflower: {path}: {what}; tried again for {PATIENCE:.0f} s")
        if now - self._since.setdefault(path, now) <= PATIENCE:
            return True
        self.over(path)
        return False

    def over(self, path: str) -> None:
        """Note that a request was answered."""
        self._since.pop(path, None)


def lasting(
    faults: Faults, asks: Callable[[], None], accepted: Callable[[], None]
) -> type[httpx.Client]:
    """Return a class of HTTP clients that shows Flower faults of the line as it can bear them.

    Parameters
    ----------
    faults : Faults
    asks : Callable[[], None]
        Is called before each request that is no heartbeat.
    accepted : Callable[[], None]
        Is called after each heartbeat that the server accepted.
    """

    class Lasting(httpx.Client):
        def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
            path = request.url.path
            if path != _HEARTBEAT_PATH:
                asks()
            try:
                response = super().send(request, **options)
            except httpx.TransportError as error:
                if _broken_off(error) and faults.waited_out(
                    path, f"the connection broke ({error})"
                ):
                    # Without the words by which Flower tells that trying again is of no use.
                    raise httpx.ConnectError("the connection broke", request=request) from error
                raise
            status = response.status_code
            if _is_fault(status, path) and faults.waited_out(path, f"the server answered {status}"):
                response.status_code = _SHOWN_INSTEAD
                return response
            faults.over(path)
            if path == _HEARTBEAT_PATH and status == httpx.codes.OK:
                accepted()
            return response

    return Lasting


def _is_fault(status: int, path: str) -> bool:
    """Whether a status is of the line or the server, and not an answer to what was asked."""
    if path == _HEARTBEAT_PATH:  # the SuperLink answers nothing else
        return status not in {httpx.codes.OK, _UNAUTHORIZED, *_WAITED_OUT_BY_FLOWER}
    server_error = status >= 500 and status not in _WAITED_OUT_BY_FLOWER
    return server_error or status in _TOO_EARLY_OR_TOO_MUCH


def _broken_off(error: Exception) -> bool:
    """Whether Flower would take an error for one that is there to stay, and it is not.

    A certificate that is not trusted is; the supervisor's look at the server says more about it.
    """
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes(error)):
        return False
    # A proxy that is just being restarted says so in its answer to CONNECT.
    by_proxy = isinstance(error, httpx.ProxyError)
    return by_proxy or any(word in str(error).lower() for word in _FATAL_WORDS)


def _end_with_thread(args: threading.ExceptHookArgs) -> None:
    """End the process when a thread of Flower's died: without it, the node is of no use."""
    threading.__excepthook__(args)
    error = args.exc_value
    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == _UNAUTHORIZED:
        return  # Flower ends itself then
    _say(f"{GAVE_UP}{args.exc_type.__name__}: {error}")
    # Flower says goodbye to the server then, which lets it in again at once.
    os.kill(os.getpid(), signal.SIGTERM)


def note(file: Path) -> None:
    """Note that something happened now, by the file's time."""
    try:
        file.touch()
    except OSError as error:
        _say(f"moonflower: a sign of life can't be noted in {file}: {error}")


def _say(text: str) -> None:
    print(" ".join(text.split()), flush=True)


def main() -> None:
    """Run ``flower-supernode`` with this process's arguments."""
    home = Path(os.environ["FLWR_HOME"])
    request, heartbeat = home / REQUEST, home / HEARTBEAT
    heartbeat.unlink(missing_ok=True)
    httpx.Client = lasting(  # type: ignore[misc]
        Faults(), lambda: note(request), lambda: note(heartbeat)
    )
    threading.excepthook = _end_with_thread
    (program,) = entry_points(group="console_scripts", name="flower-supernode")
    try:
        program.load()()
    finally:
        heartbeat.unlink(missing_ok=True)
    # It returns only when it has given up, and says why in its log. Its HTTP interface would go on.
    _say(f"{GAVE_UP}its main loop ended, see above")
    sys.stdout.flush()
    os._exit(1)

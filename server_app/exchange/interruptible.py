"""A Grid that does not keep signals waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

from flwr.app import Message

from server_app.exchange.grid_view import GridView

Result = TypeVar("Result")

SIGNALS_WAIT = 0.5
"""Seconds after which a signal is handled at the latest, however long a call takes."""


class InterruptibleGrid(GridView):
    """A Grid during whose calls the main thread handles signals.

    When its SuperLink dies, a ServerApp of flwr 1.42 raises SIGINT in a thread that watches for
    it. Python handles signals in the main thread, and there Flower's transfers wait, without a
    limit, for threads that ask the dead SuperLink again and again: the ServerApp would stay until
    a SuperLink is back, with its experiment locked.
    """

    def get_node_ids(self) -> Iterable[int]:
        """Pass on, in another thread."""
        return elsewhere(lambda: list(self._grid.get_node_ids()))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on, in another thread."""
        return elsewhere(lambda: list(self._grid.push_messages(messages)))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on, in another thread."""
        return elsewhere(lambda: list(self._grid.pull_messages(message_ids)))


def elsewhere(call: Callable[[], Result]) -> Result:
    """Return what ``call`` returns, or raise what it raises, from a thread of its own."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()  # daemon: the process does not wait for it at its end
    while not future.done():
        wait([future], timeout=SIGNALS_WAIT)
    return future.result()

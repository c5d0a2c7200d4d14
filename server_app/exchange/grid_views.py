"""Grids around Flower's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

_Result = TypeVar("_Result")

SIGNALS_WAIT = 0.5
"""Seconds after which a signal is handled at the latest, however long a call takes."""


class _View(Grid):
    """Passes everything on."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """Pass on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Pass on."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Pass on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Pass on."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class SelectedGrid(_View):
    """A view of a Grid that shows only the chosen nodes.

    Flower's strategies sample from "all" nodes of the Grid they are given; here, "all" are those
    that Moonflower has chosen by name.
    """

    def __init__(self, grid: Grid, node_ids: Iterable[int]) -> None:
        super().__init__(grid)
        self._node_ids = tuple(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the chosen nodes."""
        return list(self._node_ids)


class InterruptibleGrid(_View):
    """A Grid during whose calls the main thread handles signals.

    When its SuperLink dies, a ServerApp of flwr 1.42 raises SIGINT in a thread that watches for
    it. Python handles signals in the main thread, and there Flower's transfers wait, without a
    limit, for threads that ask the dead SuperLink again and again: the ServerApp would stay until
    a SuperLink is back, with its experiment locked.
    """

    def get_node_ids(self) -> Iterable[int]:
        """Pass on, in another thread."""
        return _elsewhere(self._grid.get_node_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on, in another thread."""
        return _elsewhere(lambda: self._grid.push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on, in another thread."""
        return _elsewhere(lambda: self._grid.pull_messages(message_ids))


def _elsewhere(call: Callable[[], Iterable[_Result]]) -> list[_Result]:
    """Return what ``call`` returns, or raise what it raises, from a thread of its own."""
    future: Future[list[_Result]] = Future()

    def run() -> None:
        try:
            future.set_result(list(call()))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()  # daemon: the process does not wait for it at its end
    while not future.done():
        wait([future], timeout=SIGNALS_WAIT)
    return future.result()

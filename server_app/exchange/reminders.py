"""Second messages to nodes that owe a reply.

A SuperNode of flwr 1.42 sends replies only right after it received a message, and waits for one
reply then. If a run ends (its ServerApp was killed, say) while the SuperNode is receiving a message
of it, the message is handled all the same, and from then on one reply too many is waiting: every
reply stays on the node until the next message comes, until the SuperNode is restarted. To the
server such a node is silent, though it works; any further message makes it send what it has.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from common import records
from common.logs import NAME
from server_app.exchange.clock import Clock
from server_app.exchange.postbox import discard

log = logging.getLogger(NAME)

SOONEST = 5.0
"""Seconds of silence before any reminder; so long for a node known to hold back its replies."""

PROBE = 15.0
"""Seconds in which a node answers a reminder, unless it holds back its answers: it starts one
process."""

KNOWN_FOR = 20
"""Exchanges after which it is found out anew whether a node holds back its replies."""


class Reminders:
    """Queries whose answers are thrown away: they only make a node send what it has.

    One at a time per node, so that a node that is merely slow gets one in all.
    """

    def __init__(self) -> None:
        # Nodes by the id of a reminder that is not answered yet.
        self._out: dict[str, int] = {}
        # For how many more exchanges a node is taken for one that holds back its replies.
        self._behind: dict[int, int] = {}
        self._told: set[int] = set()
        self._silent: set[int] = set()
        self._sent: Counter[int] = Counter()

    def begin(self, grid: Grid, clock: Clock) -> None:
        """Prepare for an exchange, and find out who holds back replies.

        That is a node which answered in the last exchange, but does not answer the reminder it
        got there, though nothing else is asked of it; for that it gets :data:`PROBE` seconds.
        """
        self._throw_away_answers(grid)
        self._behind = {node: left - 1 for node, left in self._behind.items() if left > 1}
        end = clock.now() + PROBE
        while (doubtful := self._doubtful()) and clock.now() < end:
            clock.sleep(1.0)
            self._throw_away_answers(grid)
        self._behind |= dict.fromkeys(doubtful, KNOWN_FOR)
        self._silent.clear()
        self._sent.clear()

    def _doubtful(self) -> set[int]:
        return set(self._out.values()) - self._silent - self._behind.keys()

    def end(self, answered: Iterable[int], silent: Iterable[int]) -> None:
        """Note which nodes answered in this exchange, and which did not."""
        self._silent = set(silent)
        for node_id in answered:
            if not self._sent[node_id]:
                self._behind.pop(node_id, None)
                self._told.discard(node_id)

    def delay(self, node_id: int, usual: float) -> float:
        """Return the seconds of silence after which the node's next reminder is due.

        Each further one in the same exchange waits twice as long as the one before.
        """
        first = min(usual, SOONEST) if node_id in self._behind else usual
        return first * 2.0 ** self._sent[node_id]

    def send(
        self,
        grid: Grid,
        owing: Mapping[int, str],
        silence: float,
        usual: float,
        *,
        answered: bool = True,
    ) -> None:
        """Remind those of ``owing`` for whom it is time.

        Parameters
        ----------
        grid : Grid
        owing : Mapping[int, str]
            Names by node id.
        silence : float
            Seconds since the last reply of anyone, or since the sending.
        usual : float
            Seconds of silence after which a node is reminded for the first time.
        answered : bool
            Whether anybody has answered in this exchange. If not, they may all be opening their
            data, and one is enough to find out whether they hold back what they have.
        """
        self._throw_away_answers(grid)
        due = self._due(owing, silence, usual, answered=answered)
        self._warn_of(due, owing)
        messages = [Message(RecordDict(), node_id, records.QUERY) for node_id in due]
        accepted = set(grid.push_messages(messages)) if messages else set()
        for message in messages:
            key, node_id = message.metadata.message_id, message.metadata.dst_node_id
            self._sent[node_id] += 1
            if key in accepted:
                self._out[key] = node_id
        if due:
            log.info("reminding %s", some_of(owing[node_id] for node_id in due))

    def _due(
        self, owing: Iterable[int], silence: float, usual: float, *, answered: bool
    ) -> list[int]:
        waiting = set(self._out.values())
        due = [
            node_id
            for node_id in owing
            if node_id not in waiting and silence >= self.delay(node_id, usual)
        ]
        if answered:
            return due
        unknown = [node_id for node_id in due if node_id not in self._behind]
        spare = unknown[:1] if not waiting else []
        return [node_id for node_id in due if node_id in self._behind or node_id in spare]

    def _warn_of(self, due: Iterable[int], owing: Mapping[int, str]) -> None:
        """Warn, once, of nodes that hold back their replies."""
        for node_id in (set(due) & self._behind.keys()) - self._told:
            self._told.add(node_id)
            log.warning(
                "%s sends each reply only when the next message comes, a fault of flwr 1.42 "
                "(unless its machine is so busy that it takes more than %.0f s to start a "
                "process); it is reminded in every round, which takes some seconds, until its "
                "SuperNode is restarted",
                owing[node_id],
                PROBE,
            )

    def _throw_away_answers(self, grid: Grid) -> None:
        # An error counts too: the node is gone, or the reminder was.
        for key, _ in discard(grid, self._out):
            self._out.pop(key, None)


def some_of(names: Iterable[str], shown: int = 3) -> str:
    """Return the first names in order, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - shown
    listed = ", ".join(ordered[:shown])
    return f"{listed} and {more} more" if more > 0 else listed

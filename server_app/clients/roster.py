"""Who is here: clients by name and by node."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from flwr.serverapp import Grid

from common.config import Settings
from common.logs import NAME
from server_app.clients.query import Answers, Client, query
from server_app.exchange.clock import Clock
from server_app.exchange.exchange import Patience, poll_delay
from server_app.exchange.reminders import Reminders
from server_app.replies.admission import explain
from server_app.report.history import UNREADABLE_REPLIES

log = logging.getLogger(NAME)

FIRST_LOOK = 0.2
"""Seconds until nodes are counted, or asked after, a second time; later ones are further apart."""
SAY_SO_EVERY = 10.0
REMINDER = 30.0
"""Seconds without an answer after which a node is asked who it is a second time."""
ASK_AGAIN_AFTER = 10
"""Refreshes (about one per round) after which a node that could not be used is asked again."""

RESTART = (
    "restart its SuperNode, or, if it is preparing its data for the first time, give it longer "
    "with -c server.start-timeout=SECONDS"
)
"""What helps with a node that counts as online but does not answer."""


class Roster:
    """The clients that can take part, sorted by name.

    It changes between rounds only, in :meth:`refresh`; whoever holds it always sees the clients
    of the present round.

    Parameters
    ----------
    clients : Iterable[Client]
        Those of the start.
    left_out : Iterable[int]
        Nodes that could not be used at the start; they are asked again later.
    unreadable : Iterable[int]
        Nodes whose answer at the start could not be unpacked: likewise, but not a third time. A
        run that is resumed does not know of them.
    reminders : Reminders, optional
        Those of the start.
    """

    def __init__(
        self,
        clients: Iterable[Client] = (),
        left_out: Iterable[int] = (),
        unreadable: Iterable[int] = (),
        reminders: Reminders | None = None,
    ) -> None:
        self.reminders = reminders or Reminders()
        self._by_name: dict[str, Client] = {}
        self._names: dict[int, str] = {}
        # Nodes whose name belongs to another node that still counts as online.
        self._waiting: dict[int, Client] = {}
        # Clients whose replies don't fit what they said of themselves.
        self._doubtful: set[int] = set()
        # Nodes that could not be used: when they are asked again.
        self._left_out: dict[int, int] = {}
        self._refreshes = 0
        for client in clients:
            self._add(client)
        # Nodes whose answers could not be unpacked: how many.
        self._unreadable: Counter[int] = Counter(list(unreadable))
        for node_id in (*left_out, *self._unreadable):
            self._left_out[node_id] = ASK_AGAIN_AFTER

    @property
    def clients(self) -> tuple[Client, ...]:
        """All clients, sorted by name."""
        return tuple(self._by_name[name] for name in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._by_name))

    def name_of(self, node_id: int) -> str:
        """Return the client's name.

        Raises
        ------
        KeyError
            If no client of the present round has this node id.
        """
        return self._names[node_id]

    def node_ids(self, names: Iterable[str]) -> list[int]:
        """Return the node ids of ``names``, in their order."""
        return [self._by_name[name].node_id for name in names]

    def label_counts(self) -> dict[str, list[int]]:
        """Return training examples per label, each list of length ``num_classes``, by name."""
        return {client.name: list(client.examples_per_label) for client in self.clients}

    def ask_anew(self, name: str) -> None:
        """Let the next refresh ask a client who it is, because its data may have changed.

        What it says then holds from the next round on; until then it is bound by what it said
        before. Whoever does not answer is left out like a node that came and did not answer.
        """
        self._doubtful.add(self._by_name[name].node_id)

    def refresh(self, grid: Grid, settings: Settings, clock: Clock) -> None:
        """Drop nodes that are gone and add those that came.

        A client that comes back under another node id replaces its old self once that is offline.
        One that :meth:`ask_anew` was called for is what it now says it is.
        A new node that can't be used is logged and left out. If fewer than ``server.min-replies``
        clients are left, it waits for more, up to ``server.start-timeout``.
        """
        began = clock.now()
        end = began + settings.server.start_timeout
        said_at = -SAY_SO_EVERY
        while True:
            self._update(grid, settings, clock)
            now = clock.now()
            if len(self._by_name) >= settings.server.min_replies or now >= end:
                return
            if now - said_at >= SAY_SO_EVERY:
                log.warning(
                    "waiting for clients: %d connected, server.min-replies wants %d",
                    len(self._by_name),
                    settings.server.min_replies,
                )
                said_at = now
            clock.sleep(min(poll_delay(now - began, FIRST_LOOK), end - now))

    def _update(self, grid: Grid, settings: Settings, clock: Clock) -> None:
        online = set(grid.get_node_ids())
        self._refreshes += 1
        for node_id in set(self._names) - online:
            log.warning("%s is gone", self._drop(node_id))
        for node_id in set(self._waiting) - online:
            del self._waiting[node_id]
        self._left_out = {
            node_id: again
            for node_id, again in self._left_out.items()
            if node_id in online and again > self._refreshes
        }
        shut = {node for node, count in self._unreadable.items() if count >= UNREADABLE_REPLIES}
        new = online - set(self._names) - set(self._waiting) - set(self._left_out) - shut
        candidates = list(self._waiting.values())
        doubtful, self._doubtful = self._doubtful & set(self._names), set()
        if asked := new | doubtful:
            patience = Patience(settings.server.start_timeout, len(asked), 0.0, REMINDER)
            answers = query(grid, asked, settings, patience, clock, self.reminders)
            self._leave_out(answers)
            candidates += [each for each in answers.clients if not self._renewed(each)]
        for client in sorted(candidates, key=lambda client: (client.name, client.node_id)):
            self._admit(client)

    def _renewed(self, client: Client) -> bool:
        """Put a client that was asked anew in the place of what it was, if its name is the same."""
        name = self._names.get(client.node_id)
        if name == client.name:
            before, now = (sum(c.examples_per_label) for c in (self._by_name[name], client))
            log.info("%s has %d examples now, and had %d", name, now, before)
            self._by_name[name] = client
        elif name is not None:
            log.warning("%s calls itself %s now", self._drop(client.node_id), client.name)
        return name == client.name

    def _admit(self, client: Client) -> None:
        if client.name not in self._by_name:
            self._waiting.pop(client.node_id, None)
            self._add(client)
            log.info("%s joins, %d examples", client.name, sum(client.examples_per_label))
        elif client.node_id not in self._waiting:
            self._waiting[client.node_id] = client
            log.warning(
                "node %d is left out: it is named %s, and the node of that name still counts as "
                "online. If that one is dead, this one takes its place within a minute or two; "
                "if not, give one of them another client-name.",
                client.node_id,
                client.name,
            )

    def _leave_out(self, answers: Answers) -> None:
        reasons = with_what_to_do(answers) | dict(answers.errors.values())
        if reasons:
            log.warning("left out for now:\n%s", explain(reasons))
        self._unreadable.update(list(answers.unreadable))
        for node_id in (
            *answers.silent,
            *answers.unreadable,
            *answers.misnamed,
            *answers.errors,
        ):
            self._left_out[node_id] = self._refreshes + ASK_AGAIN_AFTER
            if node_id in self._names:
                self._drop(node_id)

    def _add(self, client: Client) -> None:
        if client.name in self._by_name:
            raise ValueError(f"two clients are named {client.name!r}")
        self._by_name[client.name] = client
        self._names[client.node_id] = client.name

    def _drop(self, node_id: int) -> str:
        name = self._names.pop(node_id)
        del self._by_name[name]
        return name


def with_what_to_do(answers: Answers) -> dict[str, str]:
    """Return why nodes said nothing, and what a person can do, by what they are called."""
    silent = {
        f"node {node_id}": reason if node_id in answers.gone else f"{reason}; {RESTART}"
        for node_id, reason in answers.silent.items()
    }
    others = answers.unreadable | answers.misnamed
    return silent | {f"node {node_id}": reason for node_id, reason in others.items()}

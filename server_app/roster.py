"""Who is here: clients by name and by node."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from flwr.serverapp import Grid

from common.config import Settings
from server_app.admission import explain
from server_app.clock import Clock
from server_app.grid import Patience, poll_delay
from server_app.query import Answers, Client, query
from server_app.reminders import Reminders

log = logging.getLogger("moonflower")

FIRST_POLL = 0.2
SAY_SO_EVERY = 10.0
REMINDER = 30.0
"""Seconds without an answer after which a node is asked who it is a second time."""
ASK_AGAIN_AFTER = 10
"""Refreshes (about one per round) after which a node that could not be used is asked again."""


class StartError(RuntimeError):
    """The run can't begin with the nodes that are connected; the message says what to do."""


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
    reminders : Reminders, optional
        Those of the start.
    """

    def __init__(
        self,
        clients: Iterable[Client] = (),
        left_out: Iterable[int] = (),
        reminders: Reminders | None = None,
    ) -> None:
        self.reminders = reminders or Reminders()
        self._by_name: dict[str, Client] = {}
        self._names: dict[int, str] = {}
        # Nodes whose name belongs to another node that still counts as online.
        self._waiting: dict[int, Client] = {}
        # Nodes that could not be used: when they are asked again.
        self._left_out: dict[int, int] = {}
        self._refreshes = 0
        for client in clients:
            self._add(client)
        for node_id in left_out:
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

    def refresh(self, grid: Grid, settings: Settings, clock: Clock) -> None:
        """Drop nodes that are gone and add those that came.

        A client that comes back under another node id replaces its old self once that is offline.
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
            clock.sleep(min(poll_delay(now - began, FIRST_POLL), end - now))

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
        new = online - set(self._names) - set(self._waiting) - set(self._left_out)
        candidates = list(self._waiting.values())
        if new:
            patience = Patience(settings.server.start_timeout, len(new), 0.0, REMINDER)
            answers = query(grid, new, settings, patience, clock, self.reminders)
            self._leave_out(answers)
            candidates += answers.clients
        for client in sorted(candidates, key=lambda client: (client.name, client.node_id)):
            self._admit(client)

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
        reasons = {f"node {node_id}": reason for node_id, reason in answers.silent.items()}
        reasons |= dict(answers.errors.values())
        if reasons:
            log.warning("left out for now:\n%s", explain(reasons))
        for node_id in (*answers.silent, *answers.errors):
            self._left_out[node_id] = self._refreshes + ASK_AGAIN_AFTER

    def _add(self, client: Client) -> None:
        if client.name in self._by_name:
            raise ValueError(f"two clients are named {client.name!r}")
        self._by_name[client.name] = client
        self._names[client.node_id] = client.name

    def _drop(self, node_id: int) -> str:
        name = self._names.pop(node_id)
        del self._by_name[name]
        return name


def gather(grid: Grid, settings: Settings, clock: Clock) -> Roster:
    """Wait for ``server.min-clients`` nodes, ask all that are there who they are.

    Raises
    ------
    StartError
        Too few usable nodes within ``server.start-timeout``; a client that can't take part (all of
        them are listed); two clients of one name.

    Notes
    -----
    Nodes that don't answer at all are only warned of, as long as enough others do. So are sites
    whose own data can't be used, unless ``server.failure-policy`` is ``stop``: one owner's folder
    must not hold up the others. A share of a common data set that can't be used is a mistake in
    the settings or in the start of the nodes, which those who run it want to hear of at once.
    """
    wanted = settings.server.min_clients
    node_ids = _wait_for_nodes(grid, wanted, settings.server.start_timeout, clock)
    if len(node_ids) < wanted:
        raise StartError(_too_few(len(node_ids), settings))
    log.info("%d nodes are connected; asking who they are", len(node_ids))
    # The first loading of a data set can be slow, so answers have as long as a round.
    server, reminders = settings.server, Reminders()
    patience = Patience(server.round_deadline, wanted, server.straggler_grace, REMINDER)
    answers = query(grid, node_ids, settings, patience, clock, reminders)
    _check(answers, settings)
    return Roster(answers.clients, left_out=answers.errors, reminders=reminders)


def _wait_for_nodes(grid: Grid, wanted: int, timeout: float, clock: Clock) -> list[int]:
    """Return the nodes once they are enough and no more have come between two looks.

    The second look is for simulations, which connect all nodes within milliseconds: without it
    a run could begin with only the first ``wanted`` of them.
    """
    began = clock.now()
    seen: list[int] = []
    said: tuple[int, float] = (-1, -SAY_SO_EVERY)
    while True:
        node_ids = sorted(grid.get_node_ids())
        now = clock.now()
        if now - began >= timeout or (len(node_ids) >= wanted and node_ids == seen):
            return node_ids
        if len(node_ids) < wanted and (len(node_ids) != said[0] or now - said[1] >= SAY_SO_EVERY):
            log.info("waiting for clients: %d of %d are connected", len(node_ids), wanted)
            said = (len(node_ids), now)
        seen = node_ids
        clock.sleep(min(poll_delay(now - began, FIRST_POLL), began + timeout - now))


def _too_few(found: int, settings: Settings) -> str:
    server = settings.server
    return (
        f"{found} of the {server.min_clients} clients that server.min-clients asks for connected "
        f"within {server.start_timeout:g} s. Start more SuperNodes, wait longer with "
        "-c server.start-timeout=SECONDS, or ask for fewer with -c server.min-clients=N; a "
        "simulation has as many as "
        f'--federation-config "num-supernodes={server.min_clients}" says.'
    )


def _check(answers: Answers, settings: Settings) -> None:
    unusable = _unusable(answers)
    asked = len(unusable) + len(answers.clients) + len(answers.silent)
    listed = f"{len(unusable)} of {asked} clients can't take part:\n{explain(unusable)}"
    may_go_on = settings.data.is_site_data and settings.server.failure_policy == "continue"
    if unusable and not may_go_on:
        raise StartError(listed)
    _check_names(answers.clients)
    _check_partitions(answers.clients)
    silent = {f"node {node_id}": reason for node_id, reason in answers.silent.items()}
    if silent:
        log.warning("without %d nodes:\n%s", len(silent), explain(silent))
    server, usable = settings.server, len(answers.clients)
    if unusable and usable < max(server.min_clients, server.min_replies):
        raise StartError(
            f"{listed}\n{usable} can, and server.min-clients is {server.min_clients}, "
            f"server.min-replies {server.min_replies}. Mend these clients, start others, or lower "
            "the two."
        )
    if usable < server.min_clients:
        raise StartError(f"{_too_few(usable, settings)}\n{explain(silent)}")
    if usable < server.min_replies:
        raise StartError(
            f"server.min-replies is {server.min_replies}, and {usable} clients are connected: no "
            "round could succeed. Start more SuperNodes, or lower server.min-replies."
        )
    if unusable:
        log.warning("%s\nThe others go on without them.", listed)


def _check_names(clients: list[Client]) -> None:
    """Refuse two clients of one name: they would share an identity and a folder."""
    twice = {n: k for n, k in Counter(c.name for c in clients).items() if k > 1}
    if twice:
        listed = ", ".join(f"{name!r} ({count} nodes)" for name, count in twice.items())
        raise StartError(
            f"several nodes have one client name: {listed}. A name is a client's identity and "
            "the folder of its state: give every SuperNode its own, as --node-config "
            "'client-name=\"site-a\"'. A SuperNode that was just restarted counts twice for "
            "about a minute: then try again."
        )


def _unusable(answers: Answers) -> dict[str, str]:
    """Return why clients can't take part, by what they are called in a message."""
    # Two nodes with one name and one error must not hide each other.
    return {
        f"{name} (node {node_id})" if not name.startswith("node ") else name: reason
        for node_id, (name, reason) in answers.errors.items()
    }


def _check_partitions(clients: list[Client]) -> None:
    """Refuse shares that overlap: their examples would count twice."""
    shares: dict[str, list[str]] = {}
    for client in clients:
        if client.partition:
            shares.setdefault(client.partition, []).append(client.name)
    twice = {share: names for share, names in shares.items() if len(names) > 1}
    splits = {share.split(" of ")[-1] for share in shares}
    if twice or len(splits) > 1:
        listed = "; ".join(f"{share}: {', '.join(names)}" for share, names in shares.items())
        raise StartError(
            f"the clients' shares of the data set overlap (partition-id of num-partitions): "
            f"{listed}. Every SuperNode needs a partition-id of its own, and all the same "
            "num-partitions."
        )

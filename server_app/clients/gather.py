"""The start of a run: who is there, and can the run begin with them?"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flwr.serverapp import Grid

from common.config import Settings, SettingsError
from common.errors import MoonflowerError
from common.logs import NAME
from server_app.clients.query import Answers, Client, are_shares, query
from server_app.clients.roster import (
    FIRST_LOOK,
    REMINDER,
    SAY_SO_EVERY,
    Roster,
    with_what_to_do,
)
from server_app.exchange.clock import Clock
from server_app.exchange.exchange import SLOWEST_POLL, Patience, poll_delay
from server_app.exchange.reminders import Reminders
from server_app.replies.admission import explain

log = logging.getLogger(NAME)


PARTITION_SETTINGS = frozenset(
    {
        "data.partition",
        "data.alpha",
        "data.classes-per-client",
        "data.min-partition-size",
        "data.client-column",
    }
)
"""What is said of how clients share a data set; other settings matter to every client."""


class StartError(MoonflowerError, RuntimeError):
    """The run can't begin with the nodes that are connected; the message says what to do."""


def gather(grid: Grid, settings: Settings, clock: Clock) -> Roster:
    """Wait for ``server.min-clients`` nodes, ask all that are there who they are.

    Raises
    ------
    StartError
        Too few usable nodes within ``server.start-timeout``; a client that can't take part (all of
        them are listed); two clients of one name.
    SettingsError
        The run sets how data are partitioned, and no client has a partition.

    Notes
    -----
    Nodes that don't answer at all, or nothing that can be unpacked, are only warned of, as long as
    enough others do, and waited for no longer than ``server.start-timeout`` after the last answer.
    Sites whose own data can't be used are only warned of too, unless ``server.failure-policy`` is
    ``stop``: one owner's folder
    must not hold up the others. A share of a common data set that can't be used is a mistake in
    the settings or in the start of the nodes, which those who run it want to hear of at once.
    """
    server, reminders = settings.server, Reminders()
    node_ids = _wait_for_nodes(grid, server.min_clients, server.start_timeout, clock)
    if len(node_ids) < server.min_clients:
        raise StartError(_too_few(len(node_ids), settings))
    log.info("%d nodes are connected; asking who they are", len(node_ids))
    patience = Patience(
        server.round_deadline,
        server.min_clients,
        server.straggler_grace,
        REMINDER,
        silence=server.start_timeout,
    )
    answers = query(grid, node_ids, settings, patience, clock, reminders)
    answers = _wait_for_the_gone(answers, grid, settings, clock, reminders)
    _check(answers, settings)
    _check_partition_settings(answers.clients, grid.run.override_config, settings)
    _warn_of_class_0(answers.clients)
    left_out = {*answers.errors, *answers.misnamed} | (answers.silent.keys() - answers.gone)
    return Roster(answers.clients, left_out, answers.unreadable, reminders)


def _wait_for_the_gone(
    answers: Answers, grid: Grid, settings: Settings, clock: Clock, reminders: Reminders
) -> Answers:
    """Ask nodes that went away once they are back, if the start can't do without them.

    A SuperNode that was killed a moment ago still counts as online, and a run that is resumed then
    finds it gone only when it asks; its supervisor brings it back within a minute or two.
    """
    server = settings.server
    end = clock.now() + server.start_timeout
    said_at = -SAY_SO_EVERY
    while (missing := server.min_clients - len(answers.clients)) > 0 and answers.gone:
        now = clock.now()
        if now >= end or not _may_go_on(answers, settings):
            break
        if now - said_at >= SAY_SO_EVERY:
            log.warning("%d nodes went away; waiting until they are back", len(answers.gone))
            said_at = now
        clock.sleep(min(SLOWEST_POLL, end - now))
        patience = Patience(server.start_timeout, missing, 0.0, REMINDER)
        nodes = set(grid.get_node_ids()) - answers.known
        answers = answers.and_then(query(grid, nodes, settings, patience, clock, reminders))
    return answers


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
        clock.sleep(min(poll_delay(now - began, FIRST_LOOK), began + timeout - now))


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
    heard = len(unusable) + len(answers.clients)
    asked = heard + len(answers.silent) + len(answers.unreadable) + len(answers.misnamed)
    listed = f"{len(unusable)} of {asked} clients can't take part:\n{explain(unusable)}"
    if not _may_go_on(answers, settings):
        raise StartError(listed)
    _check_names(answers.clients)
    _check_partitions(answers.clients)
    silent = with_what_to_do(answers)
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


def _may_go_on(answers: Answers, settings: Settings) -> bool:
    own = settings.data.is_site_data and not are_shares(answers.clients)
    return (own and settings.server.failure_policy == "continue") or not answers.errors


def _check_names(clients: list[Client]) -> None:
    """Refuse two clients of one name: they would share an identity and a folder."""
    nodes: dict[str, list[str]] = {}
    for client in clients:
        nodes.setdefault(client.name, []).append(str(client.node_id))
    twice = {name: numbers for name, numbers in nodes.items() if len(numbers) > 1}
    if twice:
        listed = "; ".join(f"{name!r}: nodes {', '.join(n)}" for name, n in twice.items())
        raise StartError(
            f"several nodes have one client name ({listed}). A name is a client's identity and "
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


def _check_partition_settings(
    clients: list[Client], chosen: Mapping[str, object], settings: Settings
) -> None:
    """Refuse settings of a partition that no client has: they would be passed over in silence."""
    drawn = sorted((PARTITION_SETTINGS & chosen.keys()) - {"data.client-column"})
    if drawn and settings.data.names_sites:
        source = settings.data.client_column or settings.data.source
        raise SettingsError(
            f"{', '.join(drawn)} can't apply: {source!r} says which site each example comes from, "
            "and each site is a client. Leave these settings out"
        )
    ignored = sorted(PARTITION_SETTINGS & chosen.keys())
    if ignored and not any(client.partition for client in clients):
        raise SettingsError(
            f"{', '.join(ignored)} can't apply: no client has a partition, since all were started "
            "without partition-id and num-partitions, so that each trains on all data in its own "
            "folder. Leave these settings out, or start the SuperNodes with --node-config "
            "'partition-id=0 num-partitions=10' and the same data everywhere"
        )


def _warn_of_class_0(clients: list[Client]) -> None:
    """Warn where labels look as if they were counted from 1: nothing else would show it."""
    if clients and not any(client.examples_per_label[0] for client in clients):
        log.warning(
            "class 0 has no training example at any client: are the labels counted from 1? They "
            "are counted from 0, to data.num-classes - 1"
        )


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

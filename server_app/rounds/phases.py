"""The parts of a round: training, aggregation, evaluation.

Bad replies are left out, and waiting is bounded. Nothing here knows an algorithm: what differs
between them is inside the strategy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from flwr.app import ArrayRecord, ConfigRecord, Message

from common import records
from common.logs import NAME
from common.tasks import sums_of
from server_app.clients.roster import Roster
from server_app.clients.sampling import choose_clients, without
from server_app.exchange.downlink import encoded
from server_app.exchange.postbox import Room
from server_app.exchange.selected import SelectedGrid
from server_app.replies.admission import Gate, explain
from server_app.replies.checks import NOT_FINITE
from server_app.replies.spool import MB, Spool
from server_app.report.evaluation import Summary, summarise_clients
from server_app.report.history import recently_failed, shut_out
from server_app.rounds.attempt import Attempt, ask
from server_app.rounds.federation import (
    DivergedError,
    Federation,
    RoundFailedError,
)
from server_app.rounds.rules import evaluate_rules, train_rules

log = logging.getLogger(NAME)


def train(
    federation: Federation, arrays: ArrayRecord, server_round: int, leave_out: str = ""
) -> list[Attempt]:
    """Let the chosen clients train, without ``leave_out``.

    Returns
    -------
    list[Attempt]
        One, or a failed one and a second that was made with all clients. The last has at least
        ``server.min-replies`` usable replies.

    Raises
    ------
    RoundFailedError
        If the second attempt failed too.
    DivergedError
        If it did because the training of most clients diverged.
    ClientFailedError
        If a client failed, with ``server.failure-policy`` ``stop``.
    """
    server, roster = federation.settings.server, federation.roster
    late = federation.late.drop(federation.grid, server_round)
    here, excluded = _without_failed(federation, server_round)
    if excluded:
        log.info("round %d leaves out %s, which failed", server_round, ", ".join(excluded))
    chosen = _chosen(federation, here, server_round, leave_out)
    attempts = [_train_attempt(federation, arrays, server_round, chosen)]
    if len(attempts[0].replies) < server.min_replies:
        log.warning(
            "round %d: %d usable replies, server.min-replies is %d; trying once more with all "
            "clients\n%s",
            server_round,
            len(attempts[0].replies),
            server.min_replies,
            explain(attempts[0].reasons),
        )
        attempts[0].replies.clear()
        roster.refresh(federation.grid, federation.settings, federation.clock)
        allowed, excluded = _without_shut_out(federation)
        everybody = [name for name in allowed if name != leave_out]
        attempts.append(_train_attempt(federation, arrays, server_round, everybody))
    if len(attempts[-1].replies) < server.min_replies:
        raise _failure(federation, attempts[-1], server_round)
    if reasons := attempts[-1].reasons:
        log.warning("round %d goes on without:\n%s", server_round, explain(reasons))
    return [*attempts[:-1], _whole_story(attempts, excluded, late)]


def _whole_story(attempts: Sequence[Attempt], excluded: Sequence[str], late: int) -> Attempt:
    """Return the last attempt, with what of all attempts belongs into the round's line."""
    dropped = late + sum(attempt.participation.dropped for attempt in attempts)
    unreadable = [name for attempt in attempts for name in attempt.participation.unreadable]
    last = attempts[-1]
    participation = replace(
        last.participation, excluded=excluded, dropped=dropped, unreadable=sorted(unreadable)
    )
    return replace(last, participation=participation)


def _chosen(
    federation: Federation, here: Sequence[str], server_round: int, leave_out: str
) -> list[str]:
    """Return who trains; without ``leave_out`` the others stay those that were drawn with it."""
    server = federation.settings.server

    def drawn(names: Sequence[str]) -> list[str]:
        return choose_clients(
            names,
            server.fraction_train,
            federation.settings.seed,
            server_round,
            "train",
            at_least=server.min_replies,
        )

    chosen = [name for name in drawn(here) if name != leave_out]
    if len(chosen) < server.min_replies:
        return drawn([name for name in here if name != leave_out])
    return chosen


def _without_failed(federation: Federation, server_round: int) -> tuple[list[str], list[str]]:
    server = federation.settings.server
    failed = recently_failed(federation.tracker.history, server_round, server.exclude_rounds)
    allowed, shut = _without_shut_out(federation)
    asked, excluded = without(failed, allowed, at_least=server.min_replies)
    return asked, sorted([*excluded, *shut])


def _without_shut_out(federation: Federation) -> tuple[list[str], list[str]]:
    """Return who may be asked at all, however few are left, and who may not."""
    out, names = shut_out(federation.tracker.history), federation.roster.names
    return [n for n in names if n not in out], [n for n in names if n in out]


def _train_attempt(
    federation: Federation, arrays: ArrayRecord, server_round: int, names: Sequence[str]
) -> Attempt:
    settings = federation.settings
    config = _config(federation, server_round)
    messages: Iterable[Message] = []
    # Flower's strategies wait for ever on a Grid without nodes.
    if names:
        messages = federation.strategy.configure_train(
            server_round, arrays, config, _selected(federation, names)
        )
        messages = encoded(messages, federation.parameters, settings.wire.dtype)
    spool = Spool(federation.tracker.folder, settings.server.replies_in_memory_mb * MB)
    gate = Gate(train_rules(federation, arrays, server_round), spool.keep)
    return ask(federation, messages, gate, server_round, Room.of_a_model(arrays))


def _failure(federation: Federation, attempt: Attempt, server_round: int) -> Exception:
    reasons = explain(attempt.reasons) or f"  {_connected(federation.roster)}"
    failed = (
        f"round {server_round} failed twice: {len(attempt.replies)} usable replies, "
        f"server.min-replies is {federation.settings.server.min_replies}.\n{reasons}\n"
    )
    kept = f"What was written before is kept in {federation.tracker.folder}."
    diverged = sum(NOT_FINITE in reason for reason in attempt.reasons.values())
    if 2 * diverged > len(attempt.reasons):
        return DivergedError(
            f"{failed}The training of {diverged} of {len(attempt.reasons)} clients diverged: lower "
            f"train.learning-rate (it is {federation.settings.train.learning_rate:g}). {kept}"
        )
    return RoundFailedError(f"{failed}{kept}")


def _connected(roster: Roster) -> str:
    count = len(roster.names)
    return f"only {count} clients are connected" if count else "no client is connected"


def evaluate_clients(
    federation: Federation, server_round: int
) -> tuple[Attempt | None, Summary | None, Summary | None]:
    """Let the chosen clients evaluate the global model; too few answers are no reason to stop.

    Returns
    -------
    attempt : Attempt or None
        None if nobody was asked.
    summary : dict or None
        :func:`server_app.report.evaluation.summarise_clients`.
    personal : dict or None
        The same of the clients' own models; None without ``server.evaluate-personal``.
    """
    settings = federation.settings
    here, _ = _without_failed(federation, server_round)
    names = choose_clients(
        here, settings.server.fraction_evaluate, settings.seed, server_round, "evaluate"
    )
    if not names:
        return None, None, None
    messages = federation.strategy.configure_evaluate(
        server_round,
        federation.arrays,
        _config(federation, server_round),
        _selected(federation, names),
    )
    messages = encoded(messages, federation.parameters, settings.wire.dtype)
    own = settings.server.evaluate_personal
    gate = Gate(evaluate_rules(server_round, federation.task, personal=own))
    attempt = ask(federation, messages, gate, server_round, Room())
    if attempt.reasons:
        log.warning("round %d, not evaluated:\n%s", server_round, explain(attempt.reasons))
    # Flower's weighted means divide by the sum of examples.
    counted = [reply for reply in attempt.replies if records.num_examples(reply)]
    if counted:
        federation.strategy.aggregate_evaluate(server_round, counted)
    by_name = dict(zip(attempt.participation.participants, attempt.replies, strict=True))

    def summary(which: str) -> Summary | None:
        task = federation.task
        sums = {n: sums_of(r.content, task, which) for n, r in by_name.items()}
        return summarise_clients(task, sums)

    return attempt, summary(""), summary(records.PERSONAL) if own else None


def _selected(federation: Federation, names: Sequence[str]) -> SelectedGrid:
    return SelectedGrid(federation.grid, federation.roster.node_ids(names))


def _config(federation: Federation, server_round: int) -> ConfigRecord:
    return ConfigRecord(
        {
            records.ROUND: server_round,
            records.EXPERIMENT: federation.settings.experiment,
            records.EXPERIMENT_ID: federation.tracker.experiment_id,
            **records.statistics_to_config(federation.tracker.statistics),
        }
    )

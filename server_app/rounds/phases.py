"""The parts of a round: training, aggregation, evaluation.

Bad replies are left out, and waiting is bounded. Nothing here knows an algorithm: what differs
between them is inside the strategy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from common import records
from common.logs import NAME
from common.wire import WireError, encode_model
from server_app.clients.roster import Roster
from server_app.clients.sampling import choose_clients, without
from server_app.exchange.downlink import encoded
from server_app.exchange.exchange import Patience
from server_app.exchange.postbox import Room
from server_app.exchange.selected import SelectedGrid
from server_app.replies.admission import Gate, explain
from server_app.replies.checks import NOT_FINITE, update_norm
from server_app.replies.spool import MB, Spool
from server_app.report.evaluation import Summary, summarise_clients, sums_of
from server_app.report.history import recently_failed, shut_out
from server_app.rounds.attempt import Attempt, ask
from server_app.rounds.federation import (
    ClientFailedError,
    DivergedError,
    Federation,
    RoundFailedError,
)
from server_app.rounds.rules import evaluate_rules, train_rules
from server_app.strategies.strategy_state import strategy_state

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
    last = attempts[-1]
    if len(last.replies) < server.min_replies:
        raise _failure(federation, last, server_round)
    if last.reasons:
        log.warning("round %d goes on without:\n%s", server_round, explain(last.reasons))
    dropped = late + sum(attempt.participation.dropped for attempt in attempts)
    unreadable = [name for attempt in attempts for name in attempt.participation.unreadable]
    participation = replace(
        last.participation, excluded=excluded, dropped=dropped, unreadable=sorted(unreadable)
    )
    return [*attempts[:-1], replace(last, participation=participation)]


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
        messages = encoded(messages, _parameters(federation), settings.wire.dtype)
    spool = Spool(federation.tracker.folder, settings.server.replies_in_memory_mb * MB)
    rules = train_rules(
        server_round,
        arrays,
        _parameters(federation),
        settings,
        federation.task,
        federation.roster,
        federation.strategy,
    )
    gate = Gate(rules, spool.keep)
    return _ask(federation, messages, gate, server_round, Room.of_a_model(arrays))


def _parameters(federation: Federation) -> frozenset[str]:
    return frozenset(name for name, _ in federation.model.named_parameters())


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


def aggregate(
    federation: Federation, before: ArrayRecord, replies: list[Message], server_round: int
) -> tuple[ArrayRecord, dict[str, Any]]:
    """Return the new global model, with the dtypes of ``before``, and the train metrics.

    ``replies`` is empty afterwards, so that evaluation has its memory.

    Raises
    ------
    RoundFailedError
        The strategy returned no model.
    DivergedError
        The model or the strategy's memory is not finite, or the model can't travel in
        ``wire.dtype``.
    """
    # Counted first: a strategy may change the replies it is given.
    examples = sum(_num_examples(reply) for reply in replies)
    aggregated, metrics = federation.strategy.aggregate_train(server_round, replies)
    if aggregated is None:
        raise RoundFailedError(
            f"round {server_round}: the strategy made no model of {len(replies)} replies; "
            "its own log lines say why"
        )
    replies.clear()
    # Looked at before and after: integers hide a NaN, and FedAdam's float64 may not fit a float32.
    with np.errstate(over="ignore", invalid="ignore"):
        after = records.like(aggregated, before)
    bad = [
        name
        for name, array in aggregated.items()
        if not all(np.isfinite(each.numpy()).all() for each in (array, after[name]))
    ]
    # Moments that overflowed would hold the model where it is for good.
    bad += [
        name
        for name, tensor in strategy_state(federation.strategy).items()
        if not bool(tensor.isfinite().all())
    ]
    if bad:
        raise DivergedError(
            f"what was aggregated is not finite in {', '.join(bad[:5])}"
            f"{' and more' if len(bad) > 5 else ''}, though every admitted reply was"
        )
    try:
        encode_model(after, _parameters(federation), federation.settings.wire.dtype)
    except WireError as error:
        raise DivergedError(f"the aggregated model can't be sent: {error}") from error
    return after, {
        **(metrics or {}),
        records.NUM_EXAMPLES: examples,
    }


def change(federation: Federation, before: ArrayRecord, after: ArrayRecord) -> float | None:
    """Return the L2 norm of the global model's change; None where nothing is shared."""
    if not before:
        return None
    return update_norm(after, before, _parameters(federation))


def evaluate_clients(
    federation: Federation, arrays: ArrayRecord, server_round: int
) -> tuple[Attempt | None, Summary | None, Summary | None]:
    """Let the chosen clients evaluate; too few answers are no reason to stop.

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
        server_round, arrays, _config(federation, server_round), _selected(federation, names)
    )
    messages = encoded(messages, _parameters(federation), settings.wire.dtype)
    own = settings.server.evaluate_personal
    gate = Gate(evaluate_rules(server_round, federation.task, personal=own))
    attempt = _ask(federation, messages, gate, server_round, Room())
    if attempt.reasons:
        log.warning("round %d, not evaluated:\n%s", server_round, explain(attempt.reasons))
    # Flower's weighted means divide by the sum of examples.
    counted = [reply for reply in attempt.replies if _num_examples(reply)]
    if counted:
        federation.strategy.aggregate_evaluate(server_round, counted)
    by_name = dict(zip(attempt.participation.participants, attempt.replies, strict=True))

    def summary(which: str) -> Summary | None:
        task = federation.task
        sums = {name: sums_of(_metrics(reply), task, which) for name, reply in by_name.items()}
        return summarise_clients(task, sums)

    return attempt, summary(""), summary(records.PERSONAL) if own else None


def _ask(
    federation: Federation,
    messages: Iterable[Message],
    gate: Gate,
    server_round: int,
    room: Room,
) -> Attempt:
    attempt = ask(
        federation.grid,
        messages,
        gate,
        name_of=federation.roster.name_of,
        patience=Patience.of_a_round(federation.settings.server),
        clock=federation.clock,
        reminders=federation.roster.reminders,
        room=room,
        on_failure=lambda reasons: stop_if_asked(federation, reasons, server_round),
    )
    federation.late.expect(attempt.exchange.unanswered, server_round)
    return attempt


def stop_if_asked(federation: Federation, reasons: Mapping[str, str], server_round: int) -> None:
    """Raise ClientFailedError if ``server.failure-policy`` is ``stop``."""
    if federation.settings.server.failure_policy == "stop":
        raise ClientFailedError(
            f"round {server_round}: a client failed, and server.failure-policy is stop.\n"
            f"{explain(reasons)}\n"
            f"What was written before is kept in {federation.tracker.folder}."
        )


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


def _metrics(reply: Message) -> MetricRecord:
    return records.of_type(reply.content, MetricRecord)[records.METRICS]


def _num_examples(reply: Message) -> int:
    return int(cast(int, _metrics(reply)[records.NUM_EXAMPLES]))

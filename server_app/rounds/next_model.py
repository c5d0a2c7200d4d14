"""From a round's replies to its global model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from common import records
from common.wire import WireError, encode_model
from server_app.replies.checks import update_norm
from server_app.replies.drift import Sent, update_cosines
from server_app.rounds.attempt import Attempt
from server_app.rounds.federation import DivergedError, Federation, RoundFailedError
from server_app.strategies.client_weights import client_weight
from server_app.strategies.strategy_state import strategy_state


def with_cosines(federation: Federation, before: ArrayRecord, attempt: Attempt) -> Attempt:
    """Return the attempt with the cosines of its replies' updates, where they are wanted.

    Before aggregation, which changes replies and forgets them.
    """
    settings = federation.settings.server
    if not settings.cosines or not before:
        return attempt
    sent = {}
    for name, reply in zip(attempt.participation.participants, attempt.replies, strict=True):
        arrays = records.of_type(reply.content, ArrayRecord)[records.ARRAYS]
        sent[name] = Sent(client_weight(records.num_examples(reply), name, settings), arrays)
    cosines = update_cosines(sent, before, federation.parameters)
    return replace(attempt, updates=replace(attempt.updates, cosines=cosines))


def aggregate(
    federation: Federation, before: ArrayRecord, replies: list[Message], server_round: int
) -> tuple[dict[str, Any], float | None]:
    """Let the strategy make the new global model, and put it into ``federation.model``.

    ``replies`` is empty afterwards, so that evaluation has its memory.

    Returns
    -------
    metrics : dict
        The strategy's train metrics.
    norm : float or None
        L2 norm of the change of the parameters; None where nothing is shared.

    Raises
    ------
    RoundFailedError
        The strategy returned no model.
    DivergedError
        The model or the strategy's memory is not finite, or the model can't travel in
        ``wire.dtype``. ``federation.model`` is as it was.
    """
    # Counted first: a strategy may change the replies it is given.
    examples = sum(records.num_examples(reply) for reply in replies)
    aggregated, metrics = federation.strategy.aggregate_train(server_round, replies)
    if aggregated is None:
        raise RoundFailedError(
            f"round {server_round}: the strategy made no model of {len(replies)} replies; "
            "its own log lines say why"
        )
    replies.clear()
    after = _checked(federation, aggregated, before)
    federation.take(after)
    norm = update_norm(after, before, federation.parameters) if before else None
    return {**(metrics or {}), records.NUM_EXAMPLES: examples}, norm


def _checked(federation: Federation, aggregated: ArrayRecord, before: ArrayRecord) -> ArrayRecord:
    """Return the aggregated model with the dtypes of ``before``, if it can be gone on with."""
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
        encode_model(after, federation.parameters, federation.settings.wire.dtype)
    except WireError as error:
        raise DivergedError(f"the aggregated model can't be sent: {error}") from error
    return after

"""What the replies of a round must be, from the settings and what is known of the clients."""

from __future__ import annotations

from flwr.app import ArrayRecord, Message

from common import records
from common.packed import PackedError
from common.tasks import Task, sums_of
from common.text import shown
from common.wire import decode_update
from server_app.replies.admission import ModelRules, Rules
from server_app.rounds.federation import Federation
from server_app.strategies.wrapper import why_not


def train_rules(federation: Federation, arrays: ArrayRecord, server_round: int) -> Rules:
    """Return the rules for replies to a train instruction with the global model ``arrays``.

    Nobody may have more examples than at the query; whose data have changed is asked anew. The
    strategy's wrappers look at the records that their terms have added.
    """
    settings, task, roster = federation.settings, federation.task, federation.roster
    parameters = federation.parameters

    def further(client: str, reply: Message) -> str:
        reason = why_not(federation.strategy, client, reply)
        if reason:  # as many examples as before, but of other labels
            roster.ask_anew(client)
        return reason

    return Rules(
        server_round=server_round,
        model=ModelRules(
            reference=arrays,
            parameters=parameters,
            max_update_norm=settings.server.max_update_norm,
            clip=settings.server.norm_policy == "clip",
            norm_multiple=settings.server.norm_multiple,
            statistics_multiple=settings.server.statistics_multiple,
            decode=lambda came: decode_update(came, arrays, parameters, settings.wire.dtype),
        ),
        metrics=dict.fromkeys(records.train_metrics(task.loss_name, settings.algorithms)),
        most_examples={name: sum(held) for name, held in roster.label_counts().items()},
        further=further,
        in_doubt=roster.ask_anew,
    )


def evaluate_rules(server_round: int, task: Task, *, personal: bool = False) -> Rules:
    """Return the rules for replies to an evaluate instruction.

    With ``personal``, they hold the sums of the client's own model too: of as many examples as the
    global one's, or of none.
    """
    own = {records.NUM_EXAMPLES: None, **task.sums} if personal else {}

    def wrong_sums(client: str, reply: Message) -> str:
        try:
            return _wrong_sums(reply, task, personal=personal)
        except PackedError as error:
            return str(error)

    return Rules(
        server_round=server_round,
        metrics={**task.sums, **{f"{records.PERSONAL}{name}": n for name, n in own.items()}},
        fewest_examples=0,
        further=wrong_sums,
    )


def _wrong_sums(reply: Message, task: Task, *, personal: bool) -> str:
    sums = sums_of(reply.content, task)
    reason = task.why_not(sums)
    if reason or not personal:
        return reason
    its = sums_of(reply.content, task, records.PERSONAL)
    if its[records.NUM_EXAMPLES] not in (0, sums[records.NUM_EXAMPLES]):
        return (
            f"it scored its own model on {shown(its[records.NUM_EXAMPLES])} examples and the "
            f"global one on {sums[records.NUM_EXAMPLES]}"
        )
    reason = task.why_not(its)
    return f"of its own model: {reason}" if reason else ""

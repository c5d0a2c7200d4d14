"""The parts of a round: training, aggregation, evaluation.

Bad replies are left out, and waiting is bounded. Nothing here knows an algorithm: what differs
between them is inside the strategy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from common import records
from common.config import Settings
from common.models import SplitModel
from server_app.admission import Admission, admit, explain
from server_app.evaluation import Summary, counts_of, summarise_clients
from server_app.grid import Clock, Exchange, Patience, SelectedGrid, exchange
from server_app.report import Participation
from server_app.roster import Roster
from server_app.sampling import choose_clients
from server_app.tracking import Tracker

if TYPE_CHECKING:
    from common.data import ExampleSet

log = logging.getLogger("moonflower")


class RoundFailedError(RuntimeError):
    """A round had too few usable replies, twice; the message names each client's reason."""


class DivergedError(RuntimeError):
    """The aggregated model holds NaN or infinity; nothing good was overwritten by it."""


@dataclass(frozen=True)
class Federation:
    """What stays the same from round to round.

    Attributes
    ----------
    model : SplitModel
        A place to put the global weights for evaluation and saving, on the server's device.
    test_set : ExampleSet or None
        On the same device. None: the global model is not evaluated by the server.
    """

    settings: Settings
    grid: Grid
    roster: Roster
    strategy: Strategy
    model: SplitModel
    test_set: ExampleSet | None
    tracker: Tracker
    clock: Clock


@dataclass(frozen=True)
class Attempt:
    """One sending of an instruction, and what of the answers can be used."""

    exchange: Exchange
    admission: Admission

    @property
    def replies(self) -> list[Message]:
        """Usable replies, sorted by client name."""
        return list(self.admission.admitted.values())

    @property
    def participation(self) -> Participation:
        """Who answered and who did not, for the report."""
        return Participation(
            participants=tuple(self.admission.admitted),
            refused=self.admission.refused,
            missing=self.exchange.missing,
        )

    @property
    def reasons(self) -> dict[str, str]:
        """Why each of the other clients gave no usable reply."""
        late = f"no reply within {self.exchange.seconds:.0f} s"
        return {**self.admission.refused, **dict.fromkeys(self.exchange.missing, late)}


def train(federation: Federation, arrays: ArrayRecord, server_round: int) -> list[Attempt]:
    """Let the chosen clients train.

    Returns
    -------
    list[Attempt]
        One, or a failed one and a second that was made with all clients. The last has at least
        ``server.min-replies`` usable replies.

    Raises
    ------
    RoundFailedError
        If the second attempt failed too.
    """
    server, roster = federation.settings.server, federation.roster
    chosen = choose_clients(
        roster.names,
        server.fraction_train,
        federation.settings.seed,
        server_round,
        "train",
        at_least=server.min_replies,
    )
    attempts = [_attempt(federation, arrays, server_round, chosen)]
    if len(attempts[0].replies) < server.min_replies:
        log.warning(
            "round %d: %d usable replies, server.min-replies is %d; trying once more with all "
            "clients\n%s",
            server_round,
            len(attempts[0].replies),
            server.min_replies,
            explain(attempts[0].reasons),
        )
        roster.refresh(federation.grid, federation.settings, federation.clock)
        attempts.append(_attempt(federation, arrays, server_round, roster.names))
    last = attempts[-1]
    if len(last.replies) < server.min_replies:
        raise RoundFailedError(_failure(federation, last, server_round))
    if last.reasons:
        log.warning("round %d goes on without:\n%s", server_round, explain(last.reasons))
    return attempts


def _attempt(
    federation: Federation, arrays: ArrayRecord, server_round: int, names: Sequence[str]
) -> Attempt:
    settings = federation.settings
    config = _config(settings, server_round)
    decay = settings.train.learning_rate_decay ** (server_round - 1)
    config[records.LEARNING_RATE] = settings.train.learning_rate * decay
    messages: Iterable[Message] = []
    # Flower's strategies wait for ever on a Grid without nodes.
    if names:
        messages = federation.strategy.configure_train(
            server_round, arrays, config, _selected(federation, names)
        )
    came = _exchange(federation, messages)
    return Attempt(came, admit(came.replies, arrays))


def _failure(federation: Federation, attempt: Attempt, server_round: int) -> str:
    reasons = explain(attempt.reasons) or "  no client is connected"
    return (
        f"round {server_round} failed twice: {len(attempt.replies)} usable replies, "
        f"server.min-replies is {federation.settings.server.min_replies}.\n{reasons}\n"
        f"What was written before is kept in {federation.tracker.folder}."
    )


def aggregate(
    federation: Federation, before: ArrayRecord, replies: list[Message], server_round: int
) -> tuple[ArrayRecord, dict[str, Any]]:
    """Return the new global model, with the dtypes of ``before``, and the train metrics.

    Raises
    ------
    RoundFailedError
        The strategy returned no model.
    DivergedError
        The model is not finite.
    """
    # Counted first: a strategy may change the replies it is given.
    examples = sum(_num_examples(reply) for reply in replies)
    aggregated, metrics = federation.strategy.aggregate_train(server_round, replies)
    if aggregated is None:
        raise RoundFailedError(
            f"round {server_round}: the strategy made no model of {len(replies)} replies; "
            "its own log lines say why"
        )
    bad = [name for name, array in aggregated.items() if not np.isfinite(array.numpy()).all()]
    if bad:
        raise DivergedError(
            f"round {server_round}: the aggregated model holds NaN or infinity in "
            f"{', '.join(bad[:5])}{' and more' if len(bad) > 5 else ''}, though every admitted "
            "reply was finite. Lower train.learning-rate or server.learning-rate. What was "
            f"written before is kept in {federation.tracker.folder}."
        )
    return records.like(aggregated, before), {
        **(metrics or {}),
        records.NUM_EXAMPLES: examples,
    }


def evaluate_clients(
    federation: Federation, arrays: ArrayRecord, server_round: int
) -> tuple[Attempt | None, Summary | None]:
    """Let the chosen clients evaluate; too few answers are no reason to stop.

    Returns
    -------
    attempt : Attempt or None
        None if nobody was asked.
    summary : dict or None
        :func:`server_app.evaluation.summarise_clients`.
    """
    settings, roster = federation.settings, federation.roster
    names = choose_clients(
        roster.names, settings.server.fraction_evaluate, settings.seed, server_round, "evaluate"
    )
    if not names:
        return None, None
    messages = federation.strategy.configure_evaluate(
        server_round, arrays, _config(settings, server_round), _selected(federation, names)
    )
    came = _exchange(federation, messages)
    classes = federation.model.num_classes
    needed = {
        records.LOSS: None,
        records.CORRECT: None,
        records.CLASS_CORRECT: classes,
        records.CLASS_TOTAL: classes,
    }
    attempt = Attempt(came, admit(came.replies, None, needed=needed, fewest_examples=0))
    if attempt.reasons:
        log.warning("round %d, not evaluated:\n%s", server_round, explain(attempt.reasons))
    # Flower's weighted means divide by the sum of examples.
    counted = [reply for reply in attempt.replies if _num_examples(reply)]
    if counted:
        federation.strategy.aggregate_evaluate(server_round, counted)
    admitted = attempt.admission.admitted
    return attempt, summarise_clients({n: counts_of(_metrics(m)) for n, m in admitted.items()})


def _exchange(federation: Federation, messages: Iterable[Message]) -> Exchange:
    return exchange(
        federation.grid,
        messages,
        name_of=federation.roster.name_of,
        patience=Patience.of_a_round(federation.settings.server),
        clock=federation.clock,
    )


def _selected(federation: Federation, names: Sequence[str]) -> SelectedGrid:
    return SelectedGrid(federation.grid, federation.roster.node_ids(names))


def _config(settings: Settings, server_round: int) -> ConfigRecord:
    return ConfigRecord({records.ROUND: server_round, records.EXPERIMENT: settings.experiment})


def _metrics(reply: Message) -> MetricRecord:
    return reply.content.metric_records[records.METRICS]


def _num_examples(reply: Message) -> int:
    return int(cast(int, _metrics(reply)[records.NUM_EXAMPLES]))

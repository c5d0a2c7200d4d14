"""One playing of a round: training, aggregation, evaluation, and whether the model is any good.

A round whose model gives no finite loss is played a second time (:mod:`server_app.rounds.loop`),
so nothing here writes to the disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common import records
from common.data import ExampleSet
from common.tasks.base import BATCH_SIZE
from server_app.exchange.exchange import Exchange
from server_app.replies.checks import NOT_FINITE
from server_app.report.evaluation import Summary, evaluate_global
from server_app.rounds import phases
from server_app.rounds.attempt import Attempt
from server_app.rounds.federation import DivergedError, Federation
from server_app.rounds.next_model import aggregate, with_cosines


@dataclass(frozen=True)
class Playing:
    """What came of it.

    Attributes
    ----------
    train : Mapping
        The train metrics.
    attempts : list[Attempt]
        :func:`server_app.rounds.phases.train`.
    evaluation : Attempt or None
        Of the clients; None where they did not evaluate.
    update_norm : float or None
        L2 norm of the change of the global model's parameters; None where nothing is shared, and
        where no model could be made.
    clients, personal, global_model : dict or None
        See :mod:`server_app.report.evaluation`; None where not evaluated.
    useless : str
        Why the new model can't be gone on with, or "".
    """

    train: Mapping[str, Any]
    attempts: list[Attempt]
    update_norm: float | None = None
    evaluation: Attempt | None = None
    clients: Summary | None = None
    personal: Summary | None = None
    global_model: Summary | None = None
    useless: str = ""

    @property
    def exchanges(self) -> list[Exchange]:
        """All sending of messages that it took."""
        return [each.exchange for each in (*self.attempts, self.evaluation) if each]


def play(
    federation: Federation, server_round: int, watch: Stopwatch, leave_out: str = ""
) -> Playing:
    """Train without ``leave_out``, aggregate and, where it is due, evaluate.

    ``federation.model`` is the new model afterwards, or the old one where the new one is useless.

    Raises
    ------
    RoundFailedError, ClientFailedError, DivergedError
        From :func:`server_app.rounds.phases.train`: there is no model at all.
    """
    before = federation.arrays
    attempts = phases.train(federation, before, server_round, leave_out)
    watch.lap("train")
    attempts[-1] = with_cosines(federation, before, attempts[-1])
    try:
        metrics, norm = aggregate(federation, before, attempts[-1].replies, server_round)
    except DivergedError as error:
        return Playing({}, attempts, useless=str(error))
    watch.lap("aggregate")
    evaluation, clients, personal, global_model = None, None, None, None
    settings = federation.settings
    if server_round % settings.server.evaluate_every == 0 or server_round == settings.num_rounds:
        evaluation, clients, personal = phases.evaluate_clients(federation, server_round)
        watch.lap("evaluate-clients")
        if federation.test_set is not None:
            global_model = evaluate_global(federation.task, federation.model, federation.test_set)
        watch.lap("evaluate-global")
    useless = _why_useless(federation, global_model, evaluation) if before else ""
    if useless:
        federation.take(before)
    return Playing(metrics, attempts, norm, evaluation, clients, personal, global_model, useless)


def _why_useless(
    federation: Federation, global_model: Summary | None, evaluation: Attempt | None
) -> str:
    """Return why the global model gives no finite loss, as far as anybody has looked.

    The server's test set decides where there is one; in a round without evaluation, a batch of it.
    Else most of the clients that evaluated, so that no single one can have a round taken back.
    """
    if federation.test_set is not None:
        looked = global_model or _at_a_glance(federation, federation.test_set)
        loss = looked[records.LOSS]
        if loss is None or math.isfinite(loss):
            return ""
        return "its loss on the server's test set is not finite"
    if evaluation is None:
        return ""
    participation = evaluation.participation
    bad = sum(NOT_FINITE in reason for reason in participation.refused.values())
    asked = bad + len(participation.participants)
    if 2 * bad <= asked:
        return ""
    return f"{bad} of the {asked} clients that evaluated it found no finite loss"


def _at_a_glance(federation: Federation, test_set: ExampleSet) -> Summary:
    x, y = next(iter(test_set.batches_in_order(BATCH_SIZE)))
    return evaluate_global(federation.task, federation.model, ExampleSet(x, y))


class Stopwatch:
    """Seconds per phase; a phase that comes again adds up."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._last = now()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Count the time since the last lap as ``phase``'s."""
        moment = self._now()
        self._laps[phase] = self._laps.get(phase, 0.0) + moment - self._last
        self._last = moment

    def seconds(self) -> dict[str, float]:
        """Return them, and their sum as ``total``."""
        return {**self._laps, "total": self._last - self._began}

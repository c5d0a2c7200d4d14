"""The round loop over Flower's public Strategy interface.

``Strategy.start`` always counts from 1, waits for ever for missing nodes and ends the run on one
inconsistent reply. This loop can start anywhere; :mod:`server_app.rounds.phases` does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from flwr.app import ArrayRecord

from common import records
from common.config import Settings
from common.logs import NAME
from common.models import SplitModel
from server_app.experiment.folder import Tracker
from server_app.report.alarms import alarms
from server_app.report.evaluation import evaluate_global
from server_app.report.history import out_of_patience
from server_app.report.round_report import RoundReport
from server_app.rounds import phases
from server_app.rounds.federation import Federation
from server_app.strategies.state import strategy_state

log = logging.getLogger(NAME)


def run_rounds(federation: Federation, arrays: ArrayRecord, first_round: int = 1) -> ArrayRecord:
    """Train from ``first_round`` to ``num-rounds`` and save the final model.

    ``server.patience`` may end it earlier.

    Parameters
    ----------
    federation : Federation
        Its strategy is in the state of the end of round ``first_round - 1``.
    arrays : ArrayRecord
        The global model at that point.
    first_round : int
        From 1.

    Returns
    -------
    ArrayRecord
        The global model after the last round.

    Raises
    ------
    RoundFailedError, DivergedError, WireError
        From :mod:`server_app.rounds.phases` and :mod:`common.wire`; the rounds before are on disk.
    OutputError
        The round could not be saved; the ones before are on disk.
    """
    settings, tracker = federation.settings, federation.tracker
    for server_round in range(first_round, settings.num_rounds + 1):
        arrays, report = play_round(federation, arrays, server_round)
        tracker.write_round(report, federation.model, strategy_state(federation.strategy))
        log.info("%s", report.line())
        over = why_over(tracker, settings)
        if over:
            if server_round < settings.num_rounds:
                log.info("the run ends early: %s", over)
            tracker.write_final(federation.model)
            break
    return arrays


def why_over(tracker: Tracker, settings: Settings) -> str:
    """Return why no round follows the last one written, or "" if one does."""
    if tracker.lines and tracker.lines[-1]["round"] >= settings.num_rounds:
        return f"all {settings.num_rounds} rounds have been played"
    server = settings.server
    return out_of_patience(tracker.history, server.stop_metric, server.patience, tracker.headline)


def play_round(
    federation: Federation, arrays: ArrayRecord, server_round: int
) -> tuple[ArrayRecord, RoundReport]:
    """Train, aggregate and, where it is due, evaluate once.

    ``federation.model`` holds the new global weights afterwards.
    """
    settings, watch = federation.settings, _Stopwatch(federation.clock.now)
    federation.roster.refresh(federation.grid, settings, federation.clock)
    watch.lap("join")
    before = arrays
    attempts = phases.train(federation, arrays, server_round)
    watch.lap("train")
    arrays, metrics = phases.aggregate(federation, arrays, attempts[-1].replies, server_round)
    _load(federation.model, arrays)
    watch.lap("aggregate")
    evaluation, clients, global_model = None, None, None
    if server_round % settings.server.evaluate_every == 0 or server_round == settings.num_rounds:
        evaluation, clients = phases.evaluate_clients(federation, arrays, server_round)
        watch.lap("evaluate-clients")
        if federation.test_set is not None:
            global_model = evaluate_global(federation.task, federation.model, federation.test_set)
        watch.lap("evaluate-global")
    exchanges = [each.exchange for each in (*attempts, evaluation) if each]
    report = RoundReport(
        server_round=server_round,
        num_rounds=settings.num_rounds,
        headline=federation.task.headline,
        train=metrics,
        training=attempts[-1].participation,
        clients=clients,
        global_model=global_model,
        evaluating=evaluation.participation if evaluation else None,
        bytes_sent=sum(each.bytes_sent for each in exchanges),
        bytes_received=sum(each.bytes_received for each in exchanges),
        seconds=watch.seconds(),
        updates=attempts[-1].updates,
        update_norm=phases.change(federation, before, arrays),
    )
    return arrays, _with_alarms(federation, report)


def _with_alarms(federation: Federation, report: RoundReport) -> RoundReport:
    history = federation.tracker.history
    found = alarms(report, federation.settings.server, federation.task, history)
    for alarm in found:
        log.warning("round %d: %s", report.server_round, alarm)
    return replace(report, alarms=found)


def _load(model: SplitModel, arrays: ArrayRecord) -> None:
    """Put ``arrays`` into ``model``; buffers that stay with the clients keep their first values."""
    model.load_state_dict({**model.state_dict(), **records.to_tensors(arrays)})


class _Stopwatch:
    """Seconds per phase."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._last = now()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        moment = self._now()
        self._laps[phase] = moment - self._last
        self._last = moment

    def seconds(self) -> dict[str, float]:
        return {**self._laps, "total": self._last - self._began}

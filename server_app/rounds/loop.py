"""The round loop over Flower's public Strategy interface.

``Strategy.start`` always counts from 1, waits for ever for missing nodes and ends the run on one
inconsistent reply. This loop can start anywhere; :mod:`server_app.rounds.phases` does the rest.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import replace

from common.config import Settings
from common.logs import NAME
from common.schedules import numbers_of_round
from server_app.experiment.tracker import Tracker
from server_app.report.alarms import alarms
from server_app.report.history import out_of_patience
from server_app.report.round_report import RoundReport, TakenBack
from server_app.rounds.attempt import stop_if_asked
from server_app.rounds.federation import DivergedError, Federation
from server_app.rounds.playing import Playing, Stopwatch, play
from server_app.strategies.strategy_state import load_strategy_state, strategy_state

log = logging.getLogger(NAME)


def run_rounds(federation: Federation, first_round: int = 1) -> None:
    """Train from ``first_round`` to ``num-rounds`` and save the final model.

    ``server.patience`` may end it earlier.

    Parameters
    ----------
    federation : Federation
        Its model and strategy are in the state of the end of round ``first_round - 1``.
    first_round : int
        From 1.

    Raises
    ------
    RoundFailedError, DivergedError, WireError
        From :mod:`server_app.rounds.phases` and :mod:`common.wire`; the rounds before are on disk.
    OutputError
        The round could not be saved; the ones before are on disk.
    """
    settings, tracker = federation.settings, federation.tracker
    for server_round in range(first_round, settings.num_rounds + 1):
        report = play_round(federation, server_round)
        tracker.write_round(report, federation.model, strategy_state(federation.strategy))
        federation.tracking.round_written()
        log.info("%s", report.line())
        over = why_over(tracker, settings)
        if over:
            if server_round < settings.num_rounds:
                log.info("the run ends early: %s", over)
            tracker.write_final(federation.model)
            break


def why_over(tracker: Tracker, settings: Settings) -> str:
    """Return why no round follows the last one written, or "" if one does."""
    if tracker.lines and tracker.lines[-1]["round"] >= settings.num_rounds:
        return f"all {settings.num_rounds} rounds have been played"
    server = settings.server
    return out_of_patience(tracker.history, server.stop_metric, server.patience, tracker.headline)


def play_round(federation: Federation, server_round: int) -> RoundReport:
    """Play a round; a second time, without one client, if the new model gives no finite loss.

    The second time begins where the first one did, so that a run that is resumed between the two
    ends with the same bits. ``federation.model`` holds the new global weights afterwards.
    """
    watch = Stopwatch(federation.clock.now)
    federation.roster.refresh(federation.grid, federation.settings, federation.clock)
    federation.tracker.activity.begin_round(server_round, federation.roster.names)
    watch.lap("join")
    remembered = copy.deepcopy(strategy_state(federation.strategy))
    playing = play(federation, server_round, watch)
    exchanges, taken_back = playing.exchanges, None
    if playing.useless:
        taken_back = _take_back(federation, playing, server_round)
        load_strategy_state(federation.strategy, remembered)
        again = play(federation, server_round, watch, taken_back.client)
        if again.useless:
            raise DivergedError(_given_up(federation, again, server_round, taken_back))
        exchanges += again.exchanges
        playing = _after(playing, again, taken_back)
    report = RoundReport(
        server_round=server_round,
        num_rounds=federation.settings.num_rounds,
        headline=federation.task.headline,
        train=playing.train,
        training=playing.attempts[-1].participation,
        clients=playing.clients,
        personal=playing.personal,
        global_model=playing.global_model,
        evaluating=playing.evaluation.participation if playing.evaluation else None,
        bytes_sent=sum(each.bytes_sent for each in exchanges),
        bytes_received=sum(each.bytes_received for each in exchanges),
        seconds=watch.seconds(),
        updates=playing.attempts[-1].updates,
        update_norm=playing.update_norm,
        taken_back=taken_back,
        scheduled=numbers_of_round(federation.settings, server_round),
    )
    return _with_alarms(federation, report)


def _take_back(federation: Federation, playing: Playing, server_round: int) -> TakenBack:
    """Return without whom the round is played again.

    Raises
    ------
    DivergedError
        Too few clients would be left.
    ClientFailedError
        ``server.failure-policy`` is ``stop``.
    """
    last = playing.attempts[-1]
    taken_back = TakenBack(last.farthest, last.updates.norms[last.farthest], playing.useless)
    if len(federation.roster.names) <= federation.settings.server.min_replies:
        raise DivergedError(_given_up(federation, playing, server_round))
    stop_if_asked(federation, {taken_back.client: taken_back.reason}, server_round)
    log.warning(
        "round %d is taken back and played again without %s, whose reply was the most unlike the "
        "others (its change has norm %.6g): %s",
        server_round,
        taken_back.client,
        taken_back.norm,
        playing.useless,
    )
    return taken_back


def _after(first: Playing, again: Playing, taken_back: TakenBack) -> Playing:
    """Return the second playing, with what of the first belongs into the round's line."""
    before, last = first.attempts[-1].participation, again.attempts[-1]
    refused = {**last.participation.refused, taken_back.client: taken_back.reason}
    participation = replace(
        last.participation,
        refused=dict(sorted(refused.items())),
        dropped=before.dropped + last.participation.dropped,
        unreadable=sorted([*before.unreadable, *last.participation.unreadable]),
    )
    attempts = [*again.attempts[:-1], replace(last, participation=participation)]
    return replace(again, attempts=attempts)


def _given_up(
    federation: Federation, playing: Playing, server_round: int, before: TakenBack | None = None
) -> str:
    again = f", also when it was played again without {before.client}" if before else ""
    return (
        f"round {server_round} made a useless model{again}: {playing.useless}. Lower "
        f"train.learning-rate (it is {federation.settings.train.learning_rate:g}), or "
        "server.learning-rate where server.aggregator uses it. What was written before is kept in "
        f"{federation.tracker.folder}."
    )


def _with_alarms(federation: Federation, report: RoundReport) -> RoundReport:
    history = federation.tracker.history
    trackers = federation.tracking.complaints()
    found = alarms(report, federation.settings.server, federation.task, history, trackers)
    for alarm in found:
        log.warning("round %d: %s", report.server_round, alarm)
    return replace(report, alarms=found)

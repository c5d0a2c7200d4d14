"""What of a round should make somebody look: pure functions over its report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common import records
from common.config import ServerSettings
from common.tasks import Task
from server_app.replies.checks import NOT_FINITE
from server_app.report.history import Outcome, shut_out
from server_app.report.round_report import RoundReport


def alarms(
    report: RoundReport,
    settings: ServerSettings,
    task: Task,
    history: Sequence[Outcome] = (),
    trackers: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return what is wrong with a round that went through all the same.

    Parameters
    ----------
    report : RoundReport
    settings : ServerSettings
    task : Task
    history : Sequence[Outcome]
        The rounds before, ascending.
    trackers : Mapping[str, str], optional
        What has gone wrong with a tracker since the round before, by its name.

    Returns
    -------
    tuple[str, ...]
        One sentence each: what was seen, and what to look at.
    """
    return (
        *_taken_back(report),
        *_losses(report),
        *_guessing(report, settings.alarm_rounds, task),
        *_standing_still(report),
        *_silent(report, history),
        *_shut_out(report, history),
        *_blind_patience(report, settings),
        *(tracking_alarm(name, reason) for name, reason in (trackers or {}).items()),
    )


def tracking_alarm(name: str, reason: str) -> str:
    """Return the sentence about a tracker that does not work."""
    return (
        f"tracking to {name} does not work ({reason}): the run goes on, and what is missing there "
        f"is written when it works again, or afterwards by moonflower export EXPERIMENT --to {name}"
    )


def _taken_back(report: RoundReport) -> Iterator[str]:
    if report.taken_back:
        yield (
            f"the round was played again without {report.taken_back.client}, whose reply was the "
            f"most unlike the others: {report.taken_back.why}. Look at its log and its data; if it "
            "does so again, leave it out (server.exclude-rounds, or revoke its key)"
        )


def _losses(report: RoundReport) -> Iterator[str]:
    losses = {
        "the train loss": report.train,
        "the loss of the global model": report.global_model,
        "the clients' loss": report.clients,
    }
    bad = [name for name, numbers in losses.items() if _is_not_finite(numbers)]
    diverged = [name for name, why in report.training.refused.items() if NOT_FINITE in why]
    evaluating = report.evaluating.refused if report.evaluating else {}
    no_loss = [name for name, why in evaluating.items() if NOT_FINITE in why]
    if bad:
        yield f"{' and '.join(bad)} is not finite: lower train.learning-rate"
    if diverged:
        yield (
            f"the training of {', '.join(diverged)} diverged ({NOT_FINITE} in the reply): lower "
            "train.learning-rate, and look at the data of a client that is alone with it"
        )
    if no_loss:
        yield (
            f"the global model gives no finite loss on the data of {', '.join(no_loss)}: look at "
            "them, and lower train.learning-rate"
        )


def _is_not_finite(numbers: Mapping[str, Any] | None) -> bool:
    loss = (numbers or {}).get(records.LOSS)
    return isinstance(loss, float) and not math.isfinite(loss)


def _guessing(report: RoundReport, after: int, task: Task) -> Iterator[str]:
    if after == 0 or report.server_round < after or report.score is None:
        return
    what, score = report.score
    seen = task.guessing(score, report.global_model or report.clients or {})
    if seen:
        yield (
            f"after {report.server_round} rounds {what} is {seen}: look at the labels, at how the "
            "data are normalised, and at train.learning-rate"
        )


def _standing_still(report: RoundReport) -> Iterator[str]:
    if report.update_norm is None:  # nothing is shared that could move
        return
    idle = [name for name, norm in report.updates.norms.items() if norm == 0]
    if idle:
        yield (
            f"{', '.join(idle)} sent back the model as it was: look at their logs, at "
            "train.learning-rate and its decay"
        )
    if report.update_norm == 0:
        yield (
            "the global model has not changed: look at train.learning-rate and its decay, at "
            "server.learning-rate and at what server.aggregator leaves out"
        )


def _silent(report: RoundReport, history: Sequence[Outcome]) -> Iterator[str]:
    # A SuperNode of flwr 1.42 whose ClientApp died while it handed over a reply waits for ever for
    # the rest of it, and counts as online (docs/operations.md).
    before = history[-1].missing if history else ()
    silent = [name for name in report.training.missing if name in before]
    if silent:
        yield (
            f"{', '.join(silent)} did not answer in this round and the one before, though "
            "connected: look at the log there, and restart its SuperNode if it stands still; a "
            "client that is only slow needs a larger server.straggler-grace"
        )


def _shut_out(report: RoundReport, history: Sequence[Outcome]) -> Iterator[str]:
    phases = [report.training, *([report.evaluating] if report.evaluating else [])]
    names = tuple(name for phase in phases for name in phase.unreadable)
    now = [*history, Outcome(report.server_round, (), False, {}, unreadable=names)]
    for name in sorted(shut_out(now) - shut_out(history)):
        yield (
            f"{name} has sent what can't be unpacked for the second time and is left out for the "
            "rest of the run: no honest node does that; find out what runs there"
        )


def _blind_patience(report: RoundReport, settings: ServerSettings) -> Iterator[str]:
    watched = report.clients if settings.stop_metric.startswith("clients") else report.global_model
    evaluated = report.clients is not None or report.global_model is not None
    if settings.patience and evaluated and watched is None:
        yield (
            f"server.patience watches {settings.stop_metric}, which this round does not have: "
            "choose another server.stop-metric"
        )

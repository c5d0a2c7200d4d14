"""What of the past rounds decides about later ones.

Made of a round's line in ``metrics.jsonl`` alone, so that a resumed run decides as the one that
was interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.tasks import Headline

UNREADABLE_REPLIES = 2
"""Replies that can't be unpacked after which a client is asked no more: no honest one sends any."""


@dataclass(frozen=True)
class Outcome:
    """One past round.

    Attributes
    ----------
    server_round : int
        From 1.
    failed : tuple[str, ...]
        Clients without a usable reply to the train instruction.
    evaluated : bool
        Whether the round was evaluated at all.
    scores : Mapping[str, float]
        By the names of ``server.stop-metric``; without those that the round doesn't have.
    missing : tuple[str, ...]
        Those of ``failed`` that did not answer at all.
    unreadable : tuple[str, ...]
        Clients whose reply could not be unpacked, in training or evaluation, once for each.
    """

    server_round: int
    failed: tuple[str, ...]
    evaluated: bool
    scores: Mapping[str, float]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def outcome_of(line: Mapping[str, Any], headline: Headline) -> Outcome:
    """Return the outcome of a round from its line (``RoundReport.record()``)."""
    paths = {
        "global-score": ("global", headline.name),
        "global-loss": ("global", "loss"),
        "clients-score": ("clients", "mean"),
        "clients-worst": ("clients", "worst", headline.name),
        "clients-loss": ("clients", "loss"),
    }
    scores = {name: _at(line, path) for name, path in paths.items()}
    return Outcome(
        server_round=int(line["round"]),
        failed=(*line["refused"], *line["missing"]),
        missing=tuple(line["missing"]),
        unreadable=_unreadable(line),
        evaluated=line["evaluation"] is not None or line["global"] is not None,
        scores={name: float(value) for name, value in scores.items() if value is not None},
    )


def recently_failed(history: Iterable[Outcome], server_round: int, rounds: int) -> frozenset[str]:
    """Return the clients that failed in the last ``rounds`` rounds before ``server_round``."""
    return frozenset(
        name
        for outcome in history
        if server_round - rounds <= outcome.server_round < server_round
        for name in outcome.failed
    )


def shut_out(history: Iterable[Outcome]) -> frozenset[str]:
    """Return the clients that have sent :data:`UNREADABLE_REPLIES` or more, for the whole run."""
    counts = Counter(name for outcome in history for name in outcome.unreadable)
    return frozenset(name for name, count in counts.items() if count >= UNREADABLE_REPLIES)


def out_of_patience(
    history: Sequence[Outcome], metric: str, patience: int, headline: Headline
) -> str:
    """Return why the run should end now, or "" if it should go on.

    Parameters
    ----------
    history : Sequence[Outcome]
        All rounds so far, ascending.
    metric : str
        A ``server.stop-metric``.
    patience : int
        Evaluations since the best one, not counting it, from which on the answer is yes. 0: never.
        A round that was evaluated without a finite ``metric`` counts as one without improvement.
    headline : Headline
        What the scores are, and which way is better; of a loss, less is.
    """
    evaluated = [outcome for outcome in history if outcome.evaluated]
    known = [outcome for outcome in evaluated if metric in outcome.scores]
    if patience == 0 or not known:
        return ""
    less_is_better = metric.endswith("loss") or not headline.more_is_better
    sign = -1 if less_is_better else 1
    # Of equal ones the first: standing still is no improvement.
    best = max(known, key=lambda outcome: (sign * outcome.scores[metric], -outcome.server_round))
    since = sum(outcome.server_round > best.server_round for outcome in evaluated)
    if since < patience:
        return ""
    return (
        f"{metric} was best in round {best.server_round} ({best.scores[metric]:.4f}) and has not "
        f"improved in {since} evaluations (server.patience is {patience})"
    )


def _unreadable(line: Mapping[str, Any]) -> tuple[str, ...]:
    # Lines of version 0.1 have no such key.
    phases = (line, line["evaluation"] or {})
    return tuple(name for phase in phases for name in phase.get("unreadable", ()))


def _at(line: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = line
    for key in path:
        if found is None:
            return None
        found = found.get(key)
    return found

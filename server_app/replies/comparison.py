"""What is wrong with a reply only beside the others of its round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

FEWEST_CHANGES, FEWEST_STATISTICS = 4, 3
"""Replies below which none is refused for being unlike the others: of two clients who differ nobody
knows which is odd. The median of three is safe from one of them, but honest changes differ far more
than honest running statistics do."""

CHANGE = ""
"""What is measured of every reply: the L2 norm of its change of the parameters."""

Sizes = Mapping[str, float]
"""What was measured of one reply, the same of all: under :data:`CHANGE`, and by layer the scale of
its running statistics (:attr:`server_app.replies.checks.ArrayFindings.scales`). May be infinite."""


def unlike_the_others(
    replies: Mapping[str, Sizes], norm_multiple: float, statistics_multiple: float
) -> dict[str, str]:
    """Return why replies are beyond so many times the median of all replies, by client.

    Parameters
    ----------
    replies : Mapping[str, Sizes]
        By client; with too few of them nobody is unlike the others.
    norm_multiple, statistics_multiple : float
        Largest allowed multiple of the median norm, and of each layer's median scale. 0: any.
    """
    found: dict[str, str] = {}
    if len(replies) < FEWEST_STATISTICS:
        return found
    for what, usual in _medians(replies).items():
        multiple = statistics_multiple if what else norm_multiple
        # Of a median of 0 every number is an infinite multiple, however small.
        if multiple == 0 or usual == 0 or (not what and len(replies) < FEWEST_CHANGES):
            continue
        for name, sizes in replies.items():
            if sizes[what] > multiple * usual:
                found.setdefault(name, _reason(what, sizes[what], multiple, usual))
    return found


def farthest(replies: Mapping[str, Sizes]) -> str:
    """Return the client whose reply is the largest multiple of the median; of equal ones the first.

    Whatever is measured counts: a reply may leave the parameters alone and ruin the statistics.

    Parameters
    ----------
    replies : Mapping[str, Sizes]
        At least one, by client.
    """
    medians = _medians(replies)

    def multiple(name: str) -> float:
        return max(_ratio(replies[name][what], usual) for what, usual in medians.items())

    return max(sorted(replies), key=multiple)


def _medians(replies: Mapping[str, Sizes]) -> dict[str, float]:
    measured = next(iter(replies.values()))
    return {what: median(sizes[what] for sizes in replies.values()) for what in measured}


def _ratio(size: float, usual: float) -> float:
    if size == usual:  # both may be 0, or infinite
        return 1.0
    return size / usual if usual else math.inf


def _reason(what: str, size: float, multiple: float, usual: float) -> str:
    whose = f"running statistics of {what!r} have scale" if what else "change of the model has norm"
    setting = "statistics-multiple" if what else "norm-multiple"
    return (
        f"its {whose} {size:.6g}, more than server.{setting} ({multiple:g}) times the median of "
        f"this round's replies, {usual:.6g}"
    )

"""Numbers that change from round to round; each side works them out from the settings.

All are pure functions of a setting and the round: nothing of them travels or is kept, and a
resumed run has those of one that was never interrupted.
"""

from __future__ import annotations

import math
from typing import Literal

from common.config import LearningRateSettings, MoonSettings, Settings

Curve = Literal["linear", "cosine"]


def scheduled(
    first: float,
    decay: float,
    server_round: int,
    schedule: Literal["step", "linear", "cosine"] = "step",
    rounds: int = 1,
    warm_up: int = 0,
) -> float:
    """Return a falling number's value in a round.

    With ``t`` the rounds since the warm-up: ``first * decay ** floor(t / rounds)`` for ``step``;
    for the others on the way from ``first`` to ``first * decay``, where it stays
    (:func:`interpolated`). In the warm-up it rises linearly: ``first * r / (warm_up + 1)``.

    Parameters
    ----------
    first : float
        Its value before it falls.
    decay : float
        In (0, 1]. ``step``: the factor after every ``rounds`` rounds; else what is left of it after
        ``rounds`` rounds.
    server_round : int
        r, from 1.
    schedule : {"step", "linear", "cosine"}
    rounds : int
        At least 1.
    warm_up : int
        Rounds below ``first`` at the beginning, at least 0.
    """
    since = server_round - 1 - warm_up
    if since < 0:
        return float(first * server_round / (warm_up + 1))
    if schedule == "step":
        return float(first * decay ** (since // rounds))
    return interpolated(first, first * decay, since / rounds, schedule)


def interpolated(start: float, end: float, way: float, curve: Curve) -> float:
    """Return the number at a part of the way from ``start`` to ``end``.

    ``linear``: ``start + way (end - start)``; ``cosine``: the same of ``(1 - cos(pi way)) / 2``,
    slow at both ends (Loshchilov and Hutter, ICLR 2017, arXiv:1608.03983, Eq. 5).

    Parameters
    ----------
    start, end : float
    way : float
        At least 0; from 1 on it is ``end``.
    curve : {"linear", "cosine"}
    """
    if way >= 1:
        return float(end)
    part = way if curve == "linear" else (1 - math.cos(math.pi * way)) / 2
    return float(start + part * (end - start))


def learning_rate(settings: LearningRateSettings, server_round: int) -> float:
    """Return the learning rate of a round, of ``[train]`` or of ``[server]``."""
    return scheduled(
        settings.learning_rate,
        settings.learning_rate_decay,
        server_round,
        settings.learning_rate_schedule,
        settings.learning_rate_rounds,
        settings.learning_rate_warm_up,
    )


def moon_mu(settings: MoonSettings, server_round: int) -> float:
    """Return MOON's mu in a round: ``mu-start`` in the first, ``mu`` after ``mu-rounds``."""
    if not settings.mu_rounds:
        return settings.mu
    way = (server_round - 1) / settings.mu_rounds
    return interpolated(settings.mu_start, settings.mu, way, settings.schedule)


def moon_temperature(settings: MoonSettings, server_round: int) -> float:
    """Return MOON's tau in a round, as :func:`moon_mu`."""
    if not settings.temperature_rounds:
        return settings.temperature
    way = (server_round - 1) / settings.temperature_rounds
    start = settings.temperature_start
    return interpolated(start, settings.temperature, way, settings.schedule)


def numbers_of_round(settings: Settings, server_round: int) -> dict[str, float]:
    """Return what the settings that may change with the round are in it, by their names.

    Only of what the run uses.
    """
    numbers = {"train.learning-rate": learning_rate(settings.train, server_round)}
    if settings.server.uses_learning_rate:
        numbers["server.learning-rate"] = learning_rate(settings.server, server_round)
    if "moon" in settings.algorithms:
        numbers["moon.mu"] = moon_mu(settings.moon, server_round)
        numbers["moon.temperature"] = moon_temperature(settings.moon, server_round)
    if "fedgen" in settings.algorithms:
        fedgen = settings.fedgen
        for name, first in (("alpha", fedgen.alpha), ("beta", fedgen.beta)):
            numbers[f"fedgen.{name}"] = scheduled(first, fedgen.decay, server_round)
    return numbers

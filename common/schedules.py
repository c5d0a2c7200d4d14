"""Numbers that change from round to round; each side works them out from the settings."""

from __future__ import annotations


def scheduled(first: float, decay: float, server_round: int) -> float:
    """Return a setting's value in a round: ``first * decay ** (server_round - 1)``.

    Parameters
    ----------
    first : float
        Its value in round 1.
    decay : float
        Factor per round, in (0, 1].
    server_round : int
        From 1.
    """
    return float(first * decay ** (server_round - 1))

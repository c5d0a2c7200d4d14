"""Which clients take part in a round."""

from __future__ import annotations

from collections.abc import Iterable, Set

from common.seeding import numpy_generator


def choose_clients(
    names: Iterable[str],
    fraction: float,
    seed: int,
    server_round: int,
    purpose: str,
    *,
    at_least: int = 1,
) -> list[str]:
    """Draw clients without replacement.

    The draw depends on the arguments and on the set of ``names`` only, so that a resumed run
    chooses the same clients. Flower's ``sample_nodes`` draws node ids, which change, from a
    global generator.

    Parameters
    ----------
    names : Iterable[str]
        Connected clients, in any order.
    fraction : float
        In [0, 1]; 0 chooses nobody. ``fraction * len(names)`` is rounded down, as in Flower.
    seed, server_round, purpose
        See :mod:`common.seeding`.
    at_least : int
        Never fewer than this, as far as there are clients.

    Returns
    -------
    list[str]
        Sorted names.

    Raises
    ------
    ValueError
        If ``fraction`` is outside [0, 1].
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction {fraction!r} of the clients: allowed is 0 to 1")
    everyone = sorted(names)
    if fraction == 0 or not everyone:
        return []
    # 0.29 * 100 is 28.999999999999996 in floating point; 29 is meant.
    wanted = int(fraction * len(everyone) + 1e-9)
    count = min(max(wanted, at_least, 1), len(everyone))
    generator = numpy_generator(seed, f"choose-{purpose}", "", server_round)
    chosen = generator.choice(len(everyone), size=count, replace=False)
    return [everyone[index] for index in sorted(chosen.tolist())]


def without(
    failed: Set[str], names: Iterable[str], *, at_least: int
) -> tuple[list[str], list[str]]:
    """Leave out clients that failed a short time ago.

    Parameters
    ----------
    failed : Set[str]
    names : Iterable[str]
        Connected clients.
    at_least : int
        If fewer would be left, nobody is left out: a round with doubtful clients is better than
        none.

    Returns
    -------
    asked, excluded : list[str]
        Sorted names.
    """
    everyone = sorted(names)
    asked = [name for name in everyone if name not in failed]
    if len(asked) < at_least:
        return everyone, []
    return asked, [name for name in everyone if name in failed]

"""How far clients go different ways: the drift that non-IID data cause, as cosines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord

PREDICTOR = "predictor."
"""Begins the names of a model's predictor (``SplitModel``)."""

_CHUNK = 2**13
"""Numbers whose products are added up in their own precision; so few that NumPy uses one thread,
and the same numbers give the same bits."""


@dataclass(frozen=True)
class Sent:
    """What a client sent: its weight in the mean, above 0, and its model."""

    weight: float
    arrays: ArrayRecord


Cosines = Mapping[str, Mapping[str, float | None]]
"""By client: ``update``, the cosine between its change of the parameters and the weighted mean of
all clients' changes, and ``predictor``, the same of the predictor's parameters alone. In [-1, 1];
None where nothing changed, or nothing of that part is shared."""


@dataclass
class _Dots:
    """Parts of one inner product after the other: client and mean, client and client."""

    mean: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)


@np.errstate(over="ignore", invalid="ignore")  # what is too large has no cosine
def update_cosines(
    sent: Mapping[str, Sent], before: ArrayRecord, parameters: Set[str]
) -> dict[str, dict[str, float | None]]:
    """Return :data:`Cosines` of one round's clients.

    One array after the other, and of each one client's after the other, twice: first for the
    mean, then for the inner products with it. Replies that wait on disk are read from there; in
    memory are two arrays and a chunk.

    Parameters
    ----------
    sent : Mapping[str, Sent]
        By client, at least one; the arrays are those of ``before``.
    before : ArrayRecord
        The global model that they received.
    parameters : Set[str]
        Names of its arrays whose change counts: no running statistics.
    """
    clients = list(sent)
    parts = {"update": "", "predictor": PREDICTOR}
    dots = {part: [_Dots() for _ in clients] for part in parts}
    squares: dict[str, list[float]] = {part: [] for part in parts}
    total = math.fsum(each.weight for each in sent.values())
    weights = [np.float32(each.weight / total) for each in sent.values()]
    for name in before:
        if name not in parameters:
            continue
        within = [part for part, beginning in parts.items() if name.startswith(beginning)]
        reference = before[name].numpy()
        mean = np.zeros_like(reference)
        for change, weight in zip(_changes(sent, name, reference), weights, strict=True):
            mean += change * weight
        for part in within:
            squares[part].append(_inner(mean, mean))
        for index, change in enumerate(_changes(sent, name, reference)):
            along, own = _inner(change, mean), _inner(change, change)
            for part in within:
                dots[part][index].mean.append(along)
                dots[part][index].own.append(own)
    return {
        client: {part: _cosine(dots[part][index], squares[part]) for part in parts}
        for index, client in enumerate(clients)
    }


def _changes(sent: Mapping[str, Sent], name: str, reference: np.ndarray) -> Iterator[np.ndarray]:
    for each in sent.values():
        yield each.arrays[name].numpy() - reference


def _inner(one: np.ndarray, other: np.ndarray) -> float:
    """Return the inner product; sums of parts of an array are added up in float64."""
    a, b = one.ravel(), other.ravel()
    parts = range(0, a.size, _CHUNK)
    return math.fsum(float(a[i : i + _CHUNK] @ b[i : i + _CHUNK]) for i in parts)


def _cosine(dots: _Dots, mean_squares: Sequence[float]) -> float | None:
    lengths = math.sqrt(math.fsum(dots.own)) * math.sqrt(math.fsum(mean_squares))
    if lengths == 0 or not math.isfinite(lengths):
        return None
    return max(-1.0, min(1.0, math.fsum(dots.mean) / lengths))

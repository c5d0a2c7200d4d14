"""Weights of classes in the loss that is minimised."""

from __future__ import annotations

from collections.abc import Sequence

from common.config import SettingsError, TaskSettings
from common.data import Statistics

Weights = tuple[float, ...]


def inverse_frequency(counts: Sequence[int]) -> Weights:
    """Return weights in inverse proportion to counts, with a mean of 1 over what was counted.

    A class without any example has a weight of 1: a site that joins later may have some.

    Parameters
    ----------
    counts : Sequence[int]
        Training examples of each class, of at least one class any.
    """
    held = [n for n in counts if n]
    mean = sum(1 / n for n in held) / len(held)
    return tuple(1 / n / mean if n else 1.0 for n in counts)


def class_weights(settings: TaskSettings, outputs: int, statistics: Statistics) -> Weights | None:
    """Return what ``task.class-weights`` asks for; None for no weights.

    Parameters
    ----------
    settings : TaskSettings
    outputs : int
        Classes, or labels of a multi-label task.
    statistics : Statistics
        Without label counts, as on a server that does not train, ``federation`` gives None.

    Raises
    ------
    SettingsError
        There are more or fewer weights than classes.
    """
    if settings.class_weights == "federation":
        counts = statistics.label_counts
        return inverse_frequency(counts) if counts else None
    given = settings.given_weights
    if given and len(given) != outputs:
        raise SettingsError(
            f"task.class-weights has {len(given)} numbers, and the data have {outputs} classes: "
            "give one for each, in their order"
        )
    return given or None

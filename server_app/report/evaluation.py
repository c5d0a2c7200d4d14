"""From counts of right answers to the numbers that are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from flwr.app import MetricRecord

from common import records
from common.evaluation import Counts, count_correct

if TYPE_CHECKING:
    from common.data import ExampleSet
    from common.models import SplitModel

Summary = dict[str, object]


def counts_of(metrics: MetricRecord) -> Counts:
    """Return what a client counted; the record has passed admission."""
    return Counts(
        total=int(cast(int, metrics[records.NUM_EXAMPLES])),
        correct=int(cast(int, metrics[records.CORRECT])),
        loss=float(cast(float, metrics[records.LOSS])),
        class_correct=tuple(int(n) for n in cast(list[int], metrics[records.CLASS_CORRECT])),
        class_total=tuple(int(n) for n in cast(list[int], metrics[records.CLASS_TOTAL])),
    )


def summarise_clients(counts: Mapping[str, Counts]) -> Summary | None:
    """Return the clients' accuracies and what they amount to.

    Parameters
    ----------
    counts : Mapping[str, Counts]
        By client name; clients without evaluation examples are left out.

    Returns
    -------
    dict or None
        None without any example. Accuracies are in [0, 1]: ``per-client`` by name; ``mean`` and
        ``std`` over clients (population); ``worst`` with ``name`` and ``accuracy``, of several the
        first name; ``weighted``, all correct answers by all examples, which is the number that
        FedGen's published code reports; ``per-class``, None for a label that nobody has. ``loss``
        is the mean cross-entropy over all examples, ``examples`` their number.
    """
    present = {name: counts[name] for name in sorted(counts) if counts[name].total > 0}
    if not present:
        return None
    accuracy = {name: count.correct / count.total for name, count in present.items()}
    examples = sum(count.total for count in present.values())
    mean = math.fsum(accuracy.values()) / len(accuracy)
    variance = math.fsum((value - mean) ** 2 for value in accuracy.values()) / len(accuracy)
    worst = min(accuracy, key=lambda name: (accuracy[name], name))
    return {
        "mean": mean,
        "std": math.sqrt(variance),
        "worst": {"name": worst, "accuracy": accuracy[worst]},
        "weighted": sum(count.correct for count in present.values()) / examples,
        "loss": math.fsum(count.loss * count.total for count in present.values()) / examples,
        "examples": examples,
        "per-client": accuracy,
        "per-class": per_class_accuracy(list(present.values())),
    }


def per_class_accuracy(counts: Sequence[Counts]) -> list[float | None]:
    """Return accuracy per label over all ``counts`` (at least one), None without examples."""
    correct = [sum(column) for column in zip(*(c.class_correct for c in counts), strict=True)]
    total = [sum(column) for column in zip(*(c.class_total for c in counts), strict=True)]
    return [right / n if n else None for right, n in zip(correct, total, strict=True)]


def evaluate_global(model: SplitModel, examples: ExampleSet) -> Summary:
    """Return ``accuracy``, ``loss``, ``examples`` and ``per-class`` of a model on a test set."""
    counts = count_correct(model, examples)
    return {
        "accuracy": counts.correct / counts.total if counts.total else None,
        "loss": counts.loss,
        "examples": counts.total,
        "per-class": per_class_accuracy([counts]),
    }

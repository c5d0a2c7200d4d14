"""From what was measured to the numbers that are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from flwr.app import MetricRecord

from common import records
from common.tasks import Sums, Task, add

if TYPE_CHECKING:
    from common.data import ExampleSet
    from common.models import SplitModel

Summary = dict[str, Any]


def sums_of(metrics: MetricRecord, task: Task, which: str = "") -> Sums:
    """Return what a client has measured; the record has passed admission.

    ``which`` is :data:`common.records.PERSONAL` for its own model's sums.
    """
    names = (records.NUM_EXAMPLES, *task.sums)
    return cast(Sums, {name: metrics[f"{which}{name}"] for name in names})


def summarise_clients(task: Task, sums: Mapping[str, Sums]) -> Summary | None:
    """Return the clients' headline scores and what they amount to.

    Parameters
    ----------
    task : Task
    sums : Mapping[str, Sums]
        By client name; clients without evaluation examples are left out.

    Returns
    -------
    dict or None
        None without any example. ``per-client``, the headline by name; ``mean`` and ``std`` over
        clients (population); ``worst`` with ``name`` and the headline, of several the first name;
        ``weighted``, the headline of all examples together, which is the number that FedGen's
        published code reports; and of all examples together the task's other scores. A score that
        is not defined is None, with the reason under ``undefined``.
    """
    present = {name: sums[name] for name in sorted(sums) if sums[name][records.NUM_EXAMPLES]}
    if not present:
        return None
    headline = task.headline
    scores = {name: task.score(each) for name, each in present.items()}
    values = {name: cast(float | None, s.values[headline.name]) for name, s in scores.items()}
    pooled = task.score(add(present.values()))
    undefined: dict[str, Any] = dict(pooled.undefined)
    if without := {
        name: each.undefined[headline.name]
        for name, each in scores.items()
        if headline.name in each.undefined
    }:
        undefined["per-client"] = without
    return {
        **_over_clients({name: v for name, v in values.items() if v is not None}, task),
        "weighted": pooled.values[headline.name],
        **{name: value for name, value in pooled.values.items() if name != headline.name},
        "per-client": values,
        **({"undefined": undefined} if undefined else {}),
    }


def _over_clients(values: Mapping[str, float], task: Task) -> Summary:
    headline = task.headline
    if not values:
        return {"mean": None, "std": None, "worst": {"name": "", headline.name: None}}
    mean = math.fsum(values.values()) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values.values()) / len(values)
    sign = 1 if headline.more_is_better else -1
    worst = min(values, key=lambda name: (sign * values[name], name))
    return {
        "mean": mean,
        "std": math.sqrt(variance),
        "worst": {"name": worst, headline.name: values[worst]},
    }


def evaluate_global(task: Task, model: SplitModel, examples: ExampleSet) -> Summary:
    """Return the task's scores of a model on a test set; ``undefined`` says why one is None."""
    scores = task.score(task.measure(model, examples))
    return {**scores.values, **({"undefined": dict(scores.undefined)} if scores.undefined else {})}

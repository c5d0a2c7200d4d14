"""From what was measured to the numbers that are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from common import records
from common.tasks import Headline, Scores, Sums, Task, add

if TYPE_CHECKING:
    from common.data import ExampleSet
    from common.models import SplitModel

Summary = dict[str, Any]


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
        published code reports; and of all examples together the task's other scores. Under
        ``scores``, by name, the same four of each other score in ``task.by_client``. A score that
        is not defined is None, with the reason under ``undefined``.
    """
    present = {name: sums[name] for name in sorted(sums) if sums[name][records.NUM_EXAMPLES]}
    if not present:
        return None
    headline = task.headline
    scores = {name: task.score(each) for name, each in present.items()}
    pooled = task.score(add(present.values()))
    over, without = _over_clients(scores, headline)
    undefined = {**pooled.undefined, **({"per-client": without} if without else {})}
    per_client = over.pop("per-client")
    others = [Headline.of(name) for name in task.by_client if name != headline.name]
    return {
        **over,
        "weighted": pooled.values[headline.name],
        **{name: value for name, value in pooled.values.items() if name != headline.name},
        "per-client": per_client,
        "scores": {each.name: _with_reasons(*_over_clients(scores, each)) for each in others},
        **({"undefined": undefined} if undefined else {}),
    }


def _over_clients(scores: Mapping[str, Scores], score: Headline) -> tuple[Summary, dict[str, str]]:
    """Return one score of all clients, and why some of them have none."""
    values = {name: cast(float | None, each.values[score.name]) for name, each in scores.items()}
    without = {
        name: each.undefined[score.name]
        for name, each in scores.items()
        if score.name in each.undefined
    }
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        nobody = {"mean": None, "std": None, "worst": {"name": "", score.name: None}}
        return {**nobody, "per-client": values}, without
    mean = math.fsum(known.values()) / len(known)
    variance = math.fsum((value - mean) ** 2 for value in known.values()) / len(known)
    sign = 1 if score.more_is_better else -1
    worst = min(known, key=lambda name: (sign * known[name], name))
    return {
        "mean": mean,
        "std": math.sqrt(variance),
        "worst": {"name": worst, score.name: known[worst]},
        "per-client": values,
    }, without


def _with_reasons(over: Summary, without: Mapping[str, str]) -> Summary:
    return {**over, **({"undefined": {"per-client": dict(without)}} if without else {})}


def evaluate_global(task: Task, model: SplitModel, examples: ExampleSet) -> Summary:
    """Return the task's scores of a model on a test set; ``undefined`` says why one is None."""
    scores = task.score(task.measure(model, examples))
    return {**scores.values, **({"undefined": dict(scores.undefined)} if scores.undefined else {})}

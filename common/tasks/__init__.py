"""Tasks: what is learned, and how good a model is at it, one file each.

To add a task, write a file here with what :class:`Task` asks for, add a line to ``TASKS``, and say
in ``common/config/task.py`` what it gives to algorithms. Then every algorithm that needs no more
trains it; admission, ``best/``, ``server.patience``, alarms and ``metrics.jsonl`` follow.
"""

from __future__ import annotations

from collections.abc import Callable

from common.config import Settings, TaskSettings
from common.data import DataSpec, Statistics, data_spec
from common.tasks.base import Headline, Scores, Step, Sums, Task, add
from common.tasks.class_weights import Weights, class_weights
from common.tasks.classification import Classification
from common.tasks.multi_label import MultiLabel
from common.tasks.regression import Regression
from common.tasks.reply import put_sums, sums_of

TASKS: dict[str, Callable[[TaskSettings, DataSpec, Weights | None], Task]] = {
    "classification": lambda settings, spec, weights: Classification(
        spec.targets.outputs, settings.score, settings.specificity, weights
    ),
    "regression": lambda settings, spec, weights: Regression(settings.score),
    "multi-label": lambda settings, spec, weights: MultiLabel(
        spec.targets.outputs, settings.score, settings.specificity, weights
    ),
}


def build_task(settings: Settings, statistics: Statistics | None = None) -> Task:
    """Return the task that ``[task]`` names, for the targets of ``[data]``.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics, optional
        Of all sites; needed to train with ``task.class-weights = "federation"``.

    Raises
    ------
    SettingsError
        Its headline is not measured on these data, or the class weights are not as many as their
        classes.
    """
    spec = data_spec(settings.data)
    weights = class_weights(settings.task, spec.targets.outputs, statistics or Statistics())
    return TASKS[settings.task.name](settings.task, spec, weights)


__all__ = [
    "TASKS",
    "Headline",
    "Scores",
    "Step",
    "Sums",
    "Task",
    "add",
    "build_task",
    "put_sums",
    "sums_of",
]

"""Tasks: what is learned, and how good a model is at it, one file each.

To add a task, write a file here with what :class:`Task` asks for, add a line to ``TASKS``, and say
in ``common/config/task.py`` what it gives to algorithms. Then every algorithm that needs no more
trains it; admission, ``best/``, ``server.patience``, alarms and ``metrics.jsonl`` follow.
"""

from __future__ import annotations

from collections.abc import Callable

from common.config import Settings, TaskSettings
from common.data import DataSpec, data_spec
from common.tasks.base import Headline, Scores, Step, Sums, Task, add
from common.tasks.classification import Classification
from common.tasks.regression import Regression
from common.tasks.reply import put_sums, sums_of

TASKS: dict[str, Callable[[TaskSettings, DataSpec], Task]] = {
    "classification": lambda settings, spec: Classification(
        spec.targets.outputs, settings.score, settings.specificity
    ),
    "regression": lambda settings, spec: Regression(settings.score),
}


def build_task(settings: Settings) -> Task:
    """Return the task that ``[task]`` names, for the targets of ``[data]``.

    Raises
    ------
    SettingsError
        Its headline is not measured on these data.
    """
    return TASKS[settings.task.name](settings.task, data_spec(settings.data))


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

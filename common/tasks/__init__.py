"""Tasks: what is learned, and how good a model is at it, one file each.

To add a task, write a file here with what :class:`Task` asks for, add a line to ``TASKS``, and say
in ``common/config/task.py`` what it gives to algorithms. Then every algorithm that needs no more
trains it; admission, ``best/``, ``server.patience``, alarms and ``metrics.jsonl`` follow.
"""

from __future__ import annotations

from collections.abc import Callable

from common.config import Settings
from common.data import DataSpec, data_spec
from common.tasks.base import Headline, Scores, Step, Sums, Task, add
from common.tasks.classification import Classification
from common.tasks.regression import Regression

TASKS: dict[str, Callable[[DataSpec], Task]] = {
    "classification": lambda spec: Classification(spec.targets.outputs),
    "regression": lambda spec: Regression(),
}


def build_task(settings: Settings) -> Task:
    """Return the task that ``[task]`` names, for the targets of ``[data]``."""
    return TASKS[settings.task.name](data_spec(settings.data))


__all__ = ["TASKS", "Headline", "Scores", "Step", "Sums", "Task", "add", "build_task"]

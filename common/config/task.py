"""What is learned: `[task]`, and what each task gives to algorithms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.config.settings_table import Table

GIVES: Mapping[str, frozenset[str]] = {
    "classification": frozenset({"z", "labels", "class labels"}),
    "regression": frozenset({"z", "labels"}),
    "multi-label": frozenset({"z", "labels"}),
}
"""By task: what a term may use of its steps and a wrapper of its clients.

``z``, a representation of each example; ``labels``, something to predict; ``class labels``, one
whole number of a known set, so that they can be counted and drawn. An algorithm's table says what
it needs (``Table.needs``); what its task doesn't give is refused when settings are parsed.
"""

SCORES: Mapping[str, tuple[str, ...]] = {
    "classification": (
        "accuracy",
        "balanced-accuracy",
        "macro-f1",
        "auroc",
        "auprc",
        "sensitivity",
        "brier",
        "calibration-error",
        "loss",
    ),
    "regression": ("rmse", "mae", "r2", "loss"),
    "multi-label": ("auroc", "auprc", "macro-f1", "sensitivity", "brier", "accuracy", "loss"),
}
"""By task: the scores that may be its headline, its usual one first."""


class TaskSettings(Table):
    """``[task]``: what is learned, and how good a model is at it."""

    name: Literal["classification", "regression", "multi-label"] = Field(
        description="`classification`: one of several labels for each example; its score is the "
        "accuracy. `regression`: a number for each; its score is the root of the mean squared "
        "error (RMSE), of which less is better. `multi-label`: for each of several labels whether "
        "an example has it; its score is the mean AUROC. See docs/algorithms.md#tasks."
    )
    headline: str = Field(
        description="The score that `best/` is chosen by, and that `server.patience`, the log and "
        "the table at the end go by. Empty: the task's usual one, "
        + ", ".join(f"`{scores[0]}` ({name})" for name, scores in SCORES.items())
        + ". Allowed: "
        + "; ".join(
            f"{name}: {', '.join(f'`{score}`' for score in scores)}"
            for name, scores in SCORES.items()
        )
        + ". See docs/measures.md."
    )
    specificity: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="Specificity at which `sensitivity` is given: the part of the negatives that "
        "has to stay below the threshold."
    )

    class_weights: str = Field(
        description="Weights of the classes in the loss that is minimised. `none`; a positive "
        "number for each class, as `1,2.5,1` (multi-label: of the examples that have the label); "
        "or `federation`: in inverse proportion to the classes' training examples at all sites "
        "at the start, with a mean of 1."
    )

    @property
    def given_weights(self) -> tuple[float, ...]:
        """The numbers in ``class_weights``; empty where it holds none."""
        if self.class_weights in ("none", "federation"):
            return ()
        return tuple(float(number) for number in self.class_weights.split(","))

    @field_validator("class_weights")
    @classmethod
    def _weights_of_classes(cls, value: str, info: ValidationInfo) -> str:
        task = info.data.get("name")
        if value == "none":
            return value
        if task == "regression" or (task == "multi-label" and value == "federation"):
            allowed = "'none'" if task == "regression" else "'none' or a number for each label"
            raise ValueError(f"task {task!r} has no classes to count: use {allowed}")
        if value == "federation":
            return value
        try:
            usable = all(0 < float(number) < math.inf for number in value.split(","))
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(
                "allowed are 'none', 'federation', or a positive number for each class, as "
                "'1,2.5,1'"
            )
        return value

    @property
    def score(self) -> str:
        """The name of the headline."""
        return self.headline or SCORES[self.name][0]

    @field_validator("headline")
    @classmethod
    def _a_score_of_the_task(cls, value: str, info: ValidationInfo) -> str:
        known = SCORES.get(info.data.get("name", ""), (value,))
        if value and value not in known:
            raise ValueError(
                f"task {info.data['name']!r} has no such score: allowed are {', '.join(known)}, or "
                "nothing for the usual one"
            )
        return value

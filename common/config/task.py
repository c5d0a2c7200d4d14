"""What is learned: `[task]`, and what each task gives to algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from common.config.settings_table import Table

GIVES: Mapping[str, frozenset[str]] = {
    "classification": frozenset({"z", "labels", "class labels"}),
    "regression": frozenset({"z", "labels"}),
}
"""By task: what a term may use of its steps and a wrapper of its clients.

``z``, a representation of each example; ``labels``, something to predict; ``class labels``, one
whole number of a known set, so that they can be counted and drawn. An algorithm's table says what
it needs (``Table.needs``); what its task doesn't give is refused when settings are parsed.
"""


class TaskSettings(Table):
    """``[task]``: what is learned, and how good a model is at it."""

    name: Literal["classification", "regression"] = Field(
        description="`classification`: one of several labels for each example; its score is the "
        "accuracy. `regression`: a number for each; its score is the root of the mean squared "
        "error (RMSE), of which less is better. See docs/algorithms.md#tasks."
    )

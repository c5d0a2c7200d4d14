"""A learning rate and how it changes from round to round: part of `[train]` and of `[server]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from common.config.settings_table import Decay, Positive, Table, Whole


class LearningRateSettings(Table):
    """A learning rate over the rounds (:func:`common.schedules.learning_rate`)."""

    learning_rate: Positive = Field(description="Learning rate before it falls.")
    learning_rate_decay: Decay = Field(
        description="Factor on the learning rate: with schedule `step` after every "
        "`learning-rate-rounds` rounds; with `linear` and `cosine`, what is left of it after so "
        "many rounds. 1: it stays."
    )
    learning_rate_schedule: Literal["step", "linear", "cosine"] = Field(
        description="How it falls: by a factor at once, again and again; or bit by bit, once, "
        "along a line or half a cosine."
    )
    learning_rate_rounds: Annotated[Whole, Field(ge=1)] = Field(
        description="Rounds after which `learning-rate-decay` has been applied (again, with "
        "`step`). They count from the end of the warm-up, and not from `num-rounds`, which may "
        "grow."
    )
    learning_rate_warm_up: Annotated[Whole, Field(ge=0)] = Field(
        description="Rounds at the start in which it rises linearly to `learning-rate`: with w of "
        "them, r/(w + 1) of it in round r."
    )

    @property
    def learning_rate_changes(self) -> bool:
        """Whether it is not the same in every round."""
        return self.learning_rate_decay < 1 or self.learning_rate_warm_up > 0

"""What all tables of settings have in common: kinds of numbers, and no unknown keys."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LARGEST = 2**31 - 1


def representable(value: int) -> int:
    """Refuse numbers that Flower's run config or torch's sizes could not hold."""
    if value > LARGEST:
        raise ValueError(f"Input should be at most {LARGEST}")
    return value


Whole = Annotated[int, AfterValidator(representable)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(gt=0, le=1)]


class Table(BaseModel):
    """A table of ``[tool.flwr.app.config]``: frozen, its keys in kebab-case."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    needs: ClassVar[frozenset[str]] = frozenset()
    """In an algorithm's table: what it needs of the task (``common.config.task.GIVES``)."""

"""What the benchmark found out: lines with their targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Target:
    """What a ratio should be.

    Attributes
    ----------
    kind : {"at least", "at most"}
    value : float
    """

    kind: Literal["at least", "at most"]
    value: float

    def met_by(self, ratio: float) -> bool:
        """Return whether ``ratio`` is good enough."""
        return ratio >= self.value if self.kind == "at least" else ratio <= self.value

    def __str__(self) -> str:
        return f"{self.kind} {self.value:.2f}"


@dataclass(frozen=True)
class Line:
    """One ratio.

    Attributes
    ----------
    part : str
        Letter of the part.
    what : str
        What was divided by what.
    ratio : float
    target : Target or None
    numbers : Mapping[str, float]
        The measured values behind it; the name ends in the unit.
    """

    part: str
    what: str
    ratio: float
    target: Target | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.met_by(self.ratio)

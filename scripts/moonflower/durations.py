"""How long something takes, and how often that is said."""

from __future__ import annotations

RECENT = 20
"""Rounds at the end that the speed is taken from: the machine may have got busier."""

SAY_SECONDS = 60.0
"""Between two lines that say how much is left."""


def duration(seconds: float) -> str:
    """Return ``"40 s"``, ``"12 min"`` or ``"3 h 20 min"``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"

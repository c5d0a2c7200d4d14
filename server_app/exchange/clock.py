"""Time as the server sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Seconds since some moment, and waiting; tests put a fake one here."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

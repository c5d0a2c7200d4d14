"""What of a run's log a person wants to see."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable

from scripts.moonflower.durations import RECENT, SAY_SECONDS, duration

# Ray puts "(ClientAppActor pid=1234) " before what a client prints.
_OURS = re.compile(r"^(?:\(.*?\)\s+)?moonflower (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)$")
_ERROR = re.compile(r"\b(ERROR|Error:|Exception:|Traceback)|^\w+(\.\w+)*Error\b")
_ROUND = re.compile(r"^round +(\d+)/(\d+) .* ([0-9.]+) s$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Progress:
    """Prints Moonflower's own lines and remembers the last ones that tell of an error.

    Parameters
    ----------
    write : Callable[[str], None]
        Prints a line.
    verbose : bool
        Print every line.
    now : Callable[[], float]
        Seconds. Every minute, what is left is said as well.

    Attributes
    ----------
    said_why : bool
        Whether an error of Moonflower's own was among the lines printed.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        verbose: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._now = write, now
        self._said_left = now()
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._verbose = verbose
        self.said_why = False
        self._errors: deque[str] = deque(maxlen=15)

    def __call__(self, line: str) -> None:
        """Take the next line of the log."""
        plain = _COLOUR.sub("", line)
        ours = _OURS.match(plain)
        if ours:
            level, text = ours.groups()
            self.said_why = self.said_why or level in ("ERROR", "CRITICAL")
            text = text if level in ("DEBUG", "INFO") else f"{level.lower()}: {text}"
            self._write(line if self._verbose else text)
            self._say_left(text)
        elif self._verbose:
            self._write(line)
        elif _ERROR.search(plain):
            self._errors.append(plain)

    def _say_left(self, text: str) -> None:
        played = _ROUND.match(text)
        if not played:
            return
        self._recent.append(float(played[3]))
        left = (int(played[2]) - int(played[1])) * sum(self._recent) / len(self._recent)
        now = self._now()
        if left and now - self._said_left >= SAY_SECONDS:
            self._said_left = now
            self._write(f"about {duration(left)} left")

    @property
    def errors(self) -> list[str]:
        """The last lines of others (Flower, Ray, Python) that speak of errors, not yet shown."""
        return list(self._errors)

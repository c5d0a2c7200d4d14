"""Moonflower's own log lines, told apart from Flower's by their first word."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from common.terminal import fitting
from common.text import escaped

NAME = "moonflower"
"""Name of the logger, and first word of every line it writes."""


class _EveryLine(logging.Formatter):
    """Put the prefix before every line: readers of a mixed log look at lines, not at records.

    A line does nothing to a terminal, whatever file name or exception is in it.
    """

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"{NAME} {record.levelname} "
        return "\n".join(prefix + escaped(line) for line in super().format(record).splitlines())


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Write to whatever ``sys.stderr`` is now: Flower and pytest replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    def format(self, record: logging.LogRecord) -> str:
        return fitting(super().format(record), self.stream)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def install() -> logging.Logger:
    """Return the logger, with exactly one handler however often this is called."""
    logger = logging.getLogger(NAME)
    if not any(isinstance(handler, _CurrentStderr) for handler in logger.handlers):
        handler = _CurrentStderr()
        handler.setFormatter(_EveryLine())
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Flower's root handlers would print every line a second time.
    logger.propagate = False
    return logger

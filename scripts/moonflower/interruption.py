"""Ctrl-C, SIGTERM and SIGHUP as one exception, so that what was started is ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedRunError(Exception):
    """A signal asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def raising_on_signals() -> Iterator[None]:
    """Raise :class:`InterruptedRunError` at the first signal; later ones are ignored.

    So a second Ctrl-C does not break off the ending of processes, which takes seconds. A signal
    that was ignored before stays so: ``nohup`` asks to survive the end of the terminal.
    """
    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise InterruptedRunError(number)

    before = {number: signal.signal(number, stop) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let the block finish: a signal that arrives in it takes effect after it.

    Not by a signal mask, which holds for one thread: the system then hands the signal to another
    thread, and Python runs its handler in the main one all the same. Main thread only.
    """
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, remember) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])

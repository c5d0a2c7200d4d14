"""Keeping one of Flower's processes alive: restart it, or stop with the reason."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from scripts.moonflower.processes import adopt_orphans, end_descendants, end_with_parent

NO_PERMISSION = 77
BAD_CONFIGURATION = 78
"""Exit codes (of sysexits.h) after which a restart is useless; the systemd units know them."""

GRACE = 30.0
"""Seconds between a request to end and the end by force: of the process, then of what it left."""

_KEPT_LINES = 200


class Verdict(Enum):
    """What the end of a process calls for."""

    RESTART = "restart"
    """It crashed, or what it needs is not there yet."""
    REFUSED = "refused"
    """It was not let in, which may pass."""
    STOP = "stop"
    """Another start would end the same way."""


@dataclass(frozen=True)
class Ending:
    """How a process ended.

    Attributes
    ----------
    verdict : Verdict
    reason : str
        What to tell a person.
    exit_code : int
        Of the supervisor, if it stops.
    """

    verdict: Verdict
    reason: str
    exit_code: int = BAD_CONFIGURATION


@dataclass(frozen=True)
class Patience:
    """How long to wait between starts, and for how long to be refused.

    Attributes
    ----------
    first, longest : float
        Seconds before the second start, and at most; they double each time.
    settled : float
        A process that lived so many seconds begins again with ``first``.
    refusals : float
        Seconds of nothing but refusals after which it stops.
    """

    first: float = 1.0
    longest: float = 30.0
    settled: float = 120.0
    refusals: float = 240.0

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1."""
        return float(min(self.first * 2.0 ** min(failures - 1, 30), self.longest))


@dataclass
class Supervisor:
    """Runs one command again and again until it is told to end.

    Attributes
    ----------
    command : Callable[[], Sequence[str]]
        Made anew for each start: ports may be other ones.
    env : Mapping[str, str]
    judge : Callable[[int, str], Ending]
        From the exit code and the last lines: what to do.
    say : Callable[[str], None]
    before : Callable[[], Ending | None]
        Looks before each start whether it makes sense; None: it does.
    after : Callable[[threading.Event], Ending | None]
        Runs beside each started process, until it is done or the event says that it ended; an
        ending that it returns ends the process.
    """

    command: Callable[[], Sequence[str]]
    env: Mapping[str, str]
    judge: Callable[[int, str], Ending]
    say: Callable[[str], None]
    before: Callable[[], Ending | None] = lambda: None
    after: Callable[[threading.Event], Ending | None] = lambda _: None
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._asked = threading.Event()
        self._signal = 0
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until another start is useless; return the exit code."""
        adopt_orphans()
        before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        failures, refused_since = 0, 0.0
        while not self._asked.is_set():
            began = self.clock()
            ending = self.before() or self._once()
            if self._asked.is_set():
                break
            now = self.clock()
            if ending.verdict is not Verdict.REFUSED:
                refused_since = 0.0
            elif not refused_since:
                refused_since = now  # it may have waited long for the server before
            tired = refused_since and now - refused_since > self.patience.refusals
            if ending.verdict is Verdict.STOP or tired:
                self.say(f"stopped: {ending.reason}")
                return ending.exit_code
            failures = 1 if now - began > self.patience.settled else failures + 1
            delay = self.patience.delay(failures)
            self.say(f"{ending.reason}; trying again in {delay:.0f} s")
            self._asked.wait(delay)
        return 0

    def _once(self) -> Ending:
        """Run the command to its end."""
        process = subprocess.Popen(
            list(self.command()),
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            # If this process is killed outright, nothing is left behind that blocks the next.
            preexec_fn=end_with_parent,  # noqa: PLW1509 (no thread holds a lock at this point)
        )
        self._process = process
        if self._asked.is_set():
            self._pass_on()
        ended = threading.Event()
        endings: list[Ending] = []
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        threads = [
            threading.Thread(target=self._accompany, args=(ended, endings), daemon=True),
            threading.Thread(target=_read, args=(process, lines), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            code = process.wait()
        finally:
            ended.set()
            self._process = None
            # It leaves processes in sessions of their own, which hold ports and memory.
            end_descendants(GRACE)
        for thread in threads:
            thread.join(GRACE)
        return endings[0] if endings else self.judge(code, "".join(lines))

    def _accompany(self, ended: threading.Event, endings: list[Ending]) -> None:
        ending = self.after(ended)
        if ending and not ended.is_set():
            endings.append(ending)
            self._pass_on()

    def _on_signal(self, number: int, _: object) -> None:
        self._signal = number
        self._asked.set()
        self._pass_on()

    def _pass_on(self) -> None:
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(self._signal or signal.SIGTERM)
            killer = threading.Timer(GRACE, process.kill)
            killer.daemon = True
            killer.start()


def _read(process: subprocess.Popen[str], lines: deque[str]) -> None:
    for line in process.stdout or ():
        lines.append(line)
        print(line, end="", flush=True)

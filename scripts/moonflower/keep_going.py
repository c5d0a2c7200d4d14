"""Submit a run, watch it, and submit it again with resume when it died."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.moonflower.submission import Log, Status, Submission, SubmissionError
from server_app.errors import NOTHING_TO_RESUME, PERMANENT

FAILED = 1
POLL_SECONDS = 5.0
LONGEST_POLL = 60.0
"""While the log goes on: asking costs 2 s of a core, and a run may take days."""

_ROUND = re.compile(r"\bmoonflower INFO round +\d+/")


@dataclass(frozen=True)
class Limits:
    """How often to try again, and when.

    Attributes
    ----------
    restarts : int
        Tries in a row without a finished round, after the first; 0: none.
    first_delay, longest_delay : float
        Seconds before the first one of them, and at most; it doubles each time.
    """

    restarts: int
    first_delay: float = 5.0
    longest_delay: float = 300.0

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1."""
        return float(min(self.first_delay * 2.0 ** min(failures - 1, 60), self.longest_delay))


@dataclass(frozen=True)
class _End:
    """How one submission ended.

    Attributes
    ----------
    status : Status
    progressed : bool
        Whether a round was finished.
    began : bool
        Whether there was a run: it was submitted, and its end is known.
    """

    status: Status
    progressed: bool = False
    began: bool = False

    @property
    def cause(self) -> str:
        """Why the run ended, without numbers: seconds and node ids change from try to try."""
        ended = self.began and self.status.kind == "failed"
        return re.sub(r"\d+", "#", self.status.details) if ended else ""


def keep_going(
    submission: Submission,
    overrides: Mapping[str, Any],
    limits: Limits,
    show: Callable[[str], None],
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run to the end, however often the SuperLink or the ServerApp dies on the way.

    Given up at once is what another try can't mend: settings that are refused, a model that
    diverged, a run that a person stopped. And at the second time, without a finished round in
    between, what has ended the run once: somebody may be doing it. A SuperLink that is away is
    another matter, since then there is no run.

    Parameters
    ----------
    submission : Submission
    overrides : Mapping[str, Any]
        Flat run config, with a name in ``experiment``.
    limits : Limits
    show : Callable[[str], None]
        Takes the lines of the run's log.
    say : Callable[[str], None]
        Takes what this function has to say.
    sleep : Callable[[float], None]

    Returns
    -------
    int
        Exit code: 0 if the run completed.
    """
    wanted = bool(overrides.get("resume", False))
    resume, failures, cause = wanted, 0, ""
    while True:
        end = _once(submission, {**overrides, "resume": resume}, limits, show, say, sleep)
        details = end.status.details or end.status.kind
        if end.status.kind == "completed":
            return 0
        if NOTHING_TO_RESUME in details and resume and not wanted:
            # It died before it began; this costs no try, since the next one is without resume.
            resume = False
            continue
        if end.status.kind == "stopped" or PERMANENT in details:
            say(f"not tried again: {details}")
            return FAILED
        if end.cause and end.cause == cause and not end.progressed:
            say(f"not tried again, since it ended the run twice: {details}")
            return FAILED
        cause = end.cause or cause
        failures = 1 if end.progressed else failures + 1
        if failures > limits.restarts:
            tries = f" after {limits.restarts} more tries in a row" if limits.restarts else ""
            say(f"the run failed{tries}: {details}")
            return FAILED
        say(
            f"the run ended before its time ({details}); submitting it again with resume=true in "
            f"{limits.delay(failures):.0f} s, try {failures} of {limits.restarts}"
        )
        sleep(limits.delay(failures))
        resume = True


def _once(
    submission: Submission,
    overrides: Mapping[str, Any],
    limits: Limits,
    show: Callable[[str], None],
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> _End:
    """Submit the run once and watch it until it ends or can't be watched any more."""
    try:
        run_id = submission.submit(overrides)
    except SubmissionError as error:
        permanent = "" if error.mendable else f"\n{PERMANENT}"
        return _End(Status("failed", f"{error}{permanent}"))
    say(f"run {run_id} of experiment {overrides['experiment']}")
    rounds = 0

    def listen(line: str) -> None:
        nonlocal rounds
        rounds += bool(_ROUND.search(line))
        show(line)

    log = submission.follow(run_id, listen)
    try:
        status = _watch(submission, run_id, log, limits, say, sleep)
    finally:
        log.stop(0.0)
    return _End(status, rounds > 0, began=True)


def _watch(
    submission: Submission,
    run_id: str,
    log: Log,
    limits: Limits,
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> Status:
    """Return how the run ended, or ``unreachable`` when the SuperLink stays away."""
    misses = 0
    while True:
        status = submission.status(run_id)
        if status.kind == "unreachable":
            misses += 1
            if misses > max(limits.restarts, 1):
                return status
            if misses == 1:
                say(f"the SuperLink does not answer ({status.details}); asking again")
            sleep(limits.delay(misses))
            continue
        if status.kind != "running":
            log.stop()
            return status
        if misses:
            say("the SuperLink answers again")
            log.restart()
            misses = 0
        # Flower ends the log with the run, as soon as it knows.
        if log.wait(0.0):
            sleep(POLL_SECONDS)
        else:
            log.wait(LONGEST_POLL)

"""Runs on somebody else's SuperLink: submitted, asked after, followed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from scripts.moonflower import flwr

SUBMIT_SECONDS = 600.0
STATUS_SECONDS = 60.0

_ABSENT = re.compile(r"is unavailable|Server error '5\d\d|timed? ?out", re.IGNORECASE)
_UNKNOWN_RUN = "Run ID not found"


class SubmissionError(RuntimeError):
    """``flwr run`` started nothing.

    Attributes
    ----------
    mendable : bool
        Whether another try may succeed: the SuperLink did not answer.
    """

    def __init__(self, message: str, *, mendable: bool) -> None:
        super().__init__(message)
        self.mendable = mendable


@dataclass(frozen=True)
class Status:
    """Where a run is.

    Attributes
    ----------
    kind : str
        ``running`` (or waiting to), ``completed``, ``failed``, ``stopped``; ``lost``: the SuperLink
        does not know the run; ``unreachable``: the SuperLink does not answer.
    details : str
        Why, as far as it is known.
    """

    kind: Literal["running", "completed", "failed", "stopped", "lost", "unreachable"]
    details: str = ""


@dataclass
class Submission:
    """A way to submit runs of one app to one SuperLink, and to watch them.

    Attributes
    ----------
    app : Path
        Folder of the app.
    connection : str or None
        Name of a SuperLink connection in Flower's config.toml; None: its default one.
    federation_config : str
        For ``--federation-config``; empty: what the SuperLink has.
    """

    app: Path
    connection: str | None = None
    federation_config: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: flwr.environment(os.environ))

    def submit(self, overrides: Mapping[str, Any]) -> str:
        """Start a run and return its id.

        Parameters
        ----------
        overrides : Mapping[str, Any]
            Flat run config.

        Raises
        ------
        SubmissionError
        """
        with tempfile.TemporaryDirectory(prefix="moonflower-") as folder:
            file = Path(folder) / "run-config.toml"
            file.write_text(tomli_w.dumps(dict(overrides)), encoding="utf-8")
            arguments = ["run", str(self.app), *self._named(), "--run-config", str(file)]
            if self.federation_config:
                arguments += ["--federation-config", self.federation_config]
            text = flwr.ask(arguments, self.env, SUBMIT_SECONDS)
        answer = flwr.answer_in(text)
        if answer.get("success") and answer.get("run-id"):
            return str(answer["run-id"])
        why = str(answer.get("error-message") or text).strip() or "flwr run printed nothing"
        raise SubmissionError(why, mendable=bool(_ABSENT.search(why)))

    def status(self, run_id: str) -> Status:
        """Ask how a run is; never raises."""
        text = flwr.ask(["list", *self._named(), "--run-id", run_id], self.env, STATUS_SECONDS)
        status, details = flwr.read_outcome(text)
        if status == "unknown":
            return Status("lost" if _UNKNOWN_RUN in text else "unreachable", _first_line(text))
        state, _, how = status.partition(":")
        if state != "finished":
            return Status("running")
        if how == "completed":
            return Status("completed")
        return Status("stopped" if how == "stopped" else "failed", details.strip())

    def follow(self, run_id: str, show: Callable[[str], None]) -> Log:
        """Show a run's log while it is written."""
        return Log(["log", run_id, *self._named(), "--stream"], self.env, show)

    def _named(self) -> list[str]:
        return [self.connection] if self.connection else []


class Log:
    """A running ``flwr log``; what was shown is not shown again after :meth:`restart`."""

    def __init__(
        self, arguments: list[str], env: Mapping[str, str], show: Callable[[str], None]
    ) -> None:
        self._arguments, self._env, self._show = arguments, env, show
        self._shown = 0
        self._start()

    def restart(self) -> None:
        """Begin again, as after the SuperLink was away."""
        self.stop(0.0)
        self._start()

    def _start(self) -> None:
        self._process = flwr.start(self._arguments, self._env, errors=subprocess.DEVNULL)
        self._reader = threading.Thread(target=self._read, args=(self._shown,), daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so many seconds; return whether it has ended."""
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def stop(self, patience: float = 5.0) -> None:
        """End it; wait up to ``patience`` seconds for its last lines."""
        self._reader.join(patience)
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self, skip: int) -> None:
        for number, line in enumerate(self._process.stdout or (), start=1):
            if number > skip:
                self._shown = number
                self._show(line.rstrip("\n"))


def _first_line(text: str) -> str:
    message = str(flwr.answer_in(text).get("error-message") or text).strip()
    return message.splitlines()[0] if message else "no answer"

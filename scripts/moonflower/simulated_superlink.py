"""A SuperLink in simulation mode, started for one run."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from scripts.moonflower import flwr
from scripts.moonflower.loopback_superlink import LoopbackSuperLink
from scripts.moonflower.processes import end_with_parent

START_TIMEOUT = 60.0
START_ATTEMPTS = 3
STATUS_TIMEOUT = 30.0


class SimulationError(RuntimeError):
    """The simulation could not be started or did not complete."""


def environment(scratch: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of everything that is started.

    Parameters
    ----------
    scratch : Path
        Holds Flower's home and Ray's sessions.
    variables : Mapping[str, str]
        ``MOONFLOWER_*``: what the app is told of the machine.
    """
    env = flwr.environment(os.environ, scratch / "flwr")
    env.pop("RAY_ADDRESS", None)  # it would join a cluster that somebody else runs
    env |= {
        "RAY_TMPDIR": str(scratch),
        "TMPDIR": str(scratch),  # torch leaves a cache of its compiler there
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    return {**env, **variables}


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink in simulation mode.

    Attributes
    ----------
    process : subprocess.Popen[bytes]
    env : dict[str, str]
        The environment for ``flwr``, whose ``FLWR_HOME`` knows the connection.
    """

    process: subprocess.Popen[bytes]
    env: dict[str, str]

    def lines(self, *arguments: str) -> Iterator[str]:
        """Yield what ``flwr ARGUMENTS`` prints, line by line, until it ends."""
        with flwr.start(arguments, self.env) as process:
            try:
                yield from process.stdout or ()
            except BaseException:
                process.kill()  # or leaving the block would wait for its end
                raise

    def outcome(self, run_id: str) -> tuple[str, str]:
        """Return a run's status, as ``finished:completed``, and its details once it finished.

        Raises
        ------
        SimulationError
            If the SuperLink does not say so within ``STATUS_TIMEOUT`` seconds.
        """
        deadline = time.monotonic() + STATUS_TIMEOUT
        status = "unknown"
        while time.monotonic() < deadline:
            text = flwr.ask(["list", flwr.CONNECTION, "--run-id", run_id], self.env, STATUS_TIMEOUT)
            status, details = flwr.read_outcome(text)
            if status.startswith("finished"):
                return status, details
            time.sleep(0.5)
        raise SimulationError(
            f"the log of run {run_id} ended, but {STATUS_TIMEOUT:.0f} seconds later its status is "
            f"{status!r}"
        )


def start_superlink(scratch: Path, env: dict[str, str]) -> SuperLink:
    """Start a SuperLink on a free port and wait until it answers.

    Raises
    ------
    SimulationError
        With what the SuperLink printed, if it doesn't come up.
    """
    output = scratch / "superlink.log"
    for _ in range(START_ATTEMPTS):
        port = _free_port()
        process = _launch(port, env, output)
        there = LoopbackSuperLink(port, None, Path(env["FLWR_HOME"]))
        if _came_up(there, process):
            there.write()
            return SuperLink(process, env)
        # Somebody may have taken the port between the look and the start: try another.
        process.kill()
        process.wait()
    printed = output.read_text(encoding="utf-8", errors="replace").strip()
    raise SimulationError(
        f"flower-superlink did not start in {START_ATTEMPTS} attempts. It printed:\n{printed}"
    )


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _launch(port: int, env: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
    command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with output.open("ab") as sink:
        return subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # If this process is killed outright, the SuperLink ends, and soon what it runs.
            preexec_fn=end_with_parent,  # noqa: PLW1509 (no thread was started yet)
        )


def _came_up(superlink: LoopbackSuperLink, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        if superlink.answers(seconds=1.0):
            return process.poll() is None
        time.sleep(0.1)
    return False

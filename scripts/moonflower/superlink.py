"""A SuperLink of one's own on a loopback port, and ``flwr`` commands that talk to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from scripts.moonflower.flwr_answer import answer_in
from scripts.moonflower.loopback import without_proxy
from scripts.moonflower.processes import end_with_parent

CONNECTION = "moonflower"
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
    env = dict(os.environ)
    env.pop("RAY_ADDRESS", None)  # it would join a cluster that somebody else runs
    binaries = str(Path(sys.executable).parent)
    env |= {
        "PATH": os.pathsep.join([binaries, env.get("PATH", os.defpath)]),
        "FLWR_HOME": str(scratch / "flwr"),
        # Without it, every run installs its dependencies (torch, some GB) anew.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_TMPDIR": str(scratch),
        "TMPDIR": str(scratch),  # torch leaves a cache of its compiler there
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",  # a line of progress is shown when it is printed
        "PYTHONIOENCODING": "utf-8",  # whatever the terminal is: this process reads it
        **without_proxy(env),
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

    def flwr(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``flwr ARGUMENTS``; both of its outputs come as one."""
        return subprocess.Popen(
            ["flwr", *arguments],
            env=self.env,
            # It would take a folder of the connection's name, as a clone, for an app.
            cwd=self.env["FLWR_HOME"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches this process only, which ends the rest
        )

    def lines(self, *arguments: str) -> Iterator[str]:
        """Yield what ``flwr ARGUMENTS`` prints, line by line, until it ends."""
        with self.flwr(*arguments) as process:
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
            text = "".join(self.lines("list", CONNECTION, "--run-id", run_id, "--format", "json"))
            status, details = read_outcome(text)
            if status.startswith("finished"):
                return status, details
            time.sleep(0.5)
        raise SimulationError(
            f"the log of run {run_id} ended, but {STATUS_TIMEOUT:.0f} seconds later its status is "
            f"{status!r}"
        )


def read_outcome(text: str) -> tuple[str, str]:
    """Return status and details of the one run in ``flwr list --format json``."""
    try:
        run = answer_in(text)["runs"][0]
        return str(run["status"]), str(run["status-details"])
    except (LookupError, TypeError):
        return "unknown", ""


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
        if _answers(port, process):
            _write_connection(Path(env["FLWR_HOME"]), port)
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


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    # No proxy: the environment's HTTP proxy does not know this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(f"http://127.0.0.1:{port}/health", timeout=1.0) as reply:
                return bool(reply.status == 200 and process.poll() is None)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def _write_connection(home: Path, port: int) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n'
        f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n',
        encoding="utf-8",
    )

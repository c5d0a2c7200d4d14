"""Run the app once under ``flwr run`` in simulation, and leave nothing running behind."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w
import torch

from common.config import SettingsError
from common.node import DEVICE_VARIABLE
from scripts.moonflower import flwr
from scripts.moonflower.interruption import raising_on_signals, signals_held_back
from scripts.moonflower.processes import adopt_orphans, end_descendants
from scripts.moonflower.repository import ROOT
from scripts.moonflower.run_config import Plan
from scripts.moonflower.scratch import scratch_folder
from scripts.moonflower.simulated_superlink import (
    SimulationError,
    SuperLink,
    environment,
    start_superlink,
)

_STARTED = re.compile(r"Successfully started run (\d+)")

# Ray gives its own servers 30 seconds to start, in its code. On a machine that does much else they
# may take longer. Nothing was trained then, so it is safe to begin again, and files that were read
# once come faster.
_RAY_TOO_SLOW = "The current node timed out during startup"
RAY_ATTEMPTS = 3


@dataclass(frozen=True)
class Machine:
    """What a simulation may use.

    Attributes
    ----------
    folders : Mapping[str, Path]
        ``MOONFLOWER_*_DIR`` to folder.
    actors : int
        Clients that train at the same time, each in a Ray actor of its own.
    gpus_per_client : float
        Part of a GPU that an actor gets; 0: clients train on the CPU.
    """

    folders: Mapping[str, Path]
    actors: int
    gpus_per_client: float = 0.0

    def variables(self) -> dict[str, str]:
        """Return the environment that tells the app of folders and device.

        Without GPUs for the clients, the server computes on the CPU as well: Ray hides GPUs from
        its actors only, and a server on a GPU would change the bits of a CPU run.
        """
        found = {name: str(folder) for name, folder in self.folders.items()}
        if not self.gpus_per_client:
            found[DEVICE_VARIABLE] = os.environ.get(DEVICE_VARIABLE, "cpu")
        return found


def check_gpus(per_client: float) -> None:
    """Refuse a part of a GPU that Ray could give to no client of this machine.

    Raises
    ------
    SettingsError
        There are not so many GPUs, or it is neither below 1 nor a whole number.
    """
    if per_client == 0:
        return
    present = torch.cuda.device_count()
    if not per_client <= present:  # a NaN is refused as well
        raise SettingsError(
            f"--gpus-per-client is {per_client:g}, but torch sees {present} CUDA devices on this "
            "machine: leave it out to train on the CPU, or install a CUDA build of torch and a "
            "driver"
        )
    if per_client > 1 and per_client != int(per_client):
        raise SettingsError(
            f"--gpus-per-client is {per_client:g}: Ray takes parts of one GPU, as 0.25, or whole "
            "ones, as 2"
        )


def trained_on(gpus_per_client: float) -> torch.device:
    """Return the kind of device that simulated clients train on."""
    return torch.device("cuda" if gpus_per_client else "cpu")


def default_actors(clients: int, cpu_threads: int) -> int:
    """Return how many clients to train at once: as many as this process has cores for."""
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))  # a container or taskset may allow fewer
    else:
        cores = os.cpu_count() or 1
    return max(1, min(clients, cores // cpu_threads))


def simulate(plan: Plan, machine: Machine, log: Path, show: Callable[[str], None]) -> None:
    """Run ``plan`` to its end.

    Parameters
    ----------
    plan : Plan
    machine : Machine
    log : Path
        Where everything that the run prints is written.
    show : Callable[[str], None]
        Receives every line of it.

    Raises
    ------
    SimulationError
        If the run did not complete.
    InterruptedRunError
        On Ctrl-C, SIGTERM or SIGHUP.
    """
    adopt_orphans()
    with raising_on_signals():
        for attempt in range(1, RAY_ATTEMPTS + 1):
            result = _attempt(plan, machine, log, show)
            if not result.ray_too_slow or attempt == RAY_ATTEMPTS:
                break
            show(
                "moonflower WARNING Ray did not start within its 30 s; trying again "
                f"(attempt {attempt + 1} of {RAY_ATTEMPTS})"
            )
    if result.status != "finished:completed":
        raise SimulationError(
            result.details.strip() or f"the run ended with the status {result.status!r}"
        )


@dataclass(frozen=True)
class _Result:
    status: str
    details: str
    ray_too_slow: bool


def _attempt(plan: Plan, machine: Machine, log: Path, show: Callable[[str], None]) -> _Result:
    """Run once, and end everything that was started."""
    too_slow = False

    def watch(line: str) -> None:
        nonlocal too_slow
        too_slow = too_slow or _RAY_TOO_SLOW in line
        show(line)

    with scratch_folder() as scratch:
        try:
            superlink = start_superlink(scratch, environment(scratch, machine.variables()))
            run_id = _follow(superlink, _arguments(plan, machine, scratch), log, watch)
            return _Result(*superlink.outcome(run_id), ray_too_slow=too_slow)
        finally:
            with signals_held_back():
                end_descendants()


def _arguments(plan: Plan, machine: Machine, scratch: Path) -> list[str]:
    run_config = scratch / "run-config.toml"
    run_config.write_text(tomli_w.dumps(plan.overrides), encoding="utf-8")
    federation: dict[str, float] = {
        "num-supernodes": plan.clients,
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": machine.actors,
    }
    if machine.gpus_per_client:
        federation["client-resources-num-gpus"] = machine.gpus_per_client
    pairs = " ".join(f"{key}={value}" for key, value in federation.items())
    arguments = ["run", str(ROOT), flwr.CONNECTION, "--stream", "--run-config", str(run_config)]
    return [*arguments, "--federation-config", pairs]


def _follow(
    superlink: SuperLink, arguments: list[str], log: Path, show: Callable[[str], None]
) -> str:
    """Start the run, pass on its log until it ends, and return its id."""
    run_id = ""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        for line in superlink.lines(*arguments):
            file.write(line)
            file.flush()
            show(line.rstrip("\n"))
            if not run_id and (match := _STARTED.search(line)):
                run_id = match.group(1)
    if not run_id:
        raise SimulationError("flwr run did not start a run")
    return run_id

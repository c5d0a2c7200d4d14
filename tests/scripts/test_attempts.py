"""A busy machine gets a second chance; a run that failed for another reason does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.moonflower import simulation
from scripts.moonflower.run_config import Plan, make_plan
from scripts.moonflower.simulated_superlink import SimulationError
from scripts.moonflower.simulation import Machine, default_actors, simulate

TOO_SLOW = "Exception: The current node timed out during startup. This could happen because"
COMPLETED = ("finished:completed", "")
FAILED = ("finished:failed", "why")


class FakeSuperLink:
    """Gives one line and one outcome for each run that is started."""

    def __init__(self, runs: list[tuple[str, tuple[str, str]]]) -> None:
        self.left = runs
        self.outcome_now = COMPLETED
        self.started = 0

    def lines(self, *_arguments: str) -> list[str]:
        """Start the next run."""
        line, self.outcome_now = self.left[self.started]
        self.started += 1
        return ["Successfully started run 7\n", line + "\n"]

    def outcome(self, run_id: str) -> tuple[str, str]:
        """Say how it ended."""
        assert run_id == "7"
        return self.outcome_now


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeSuperLink], list[str]]:
    """Return a function that simulates on a fake and returns the lines shown."""
    plan: Plan = make_plan(None, [], {}, 3)
    for name in ("adopt_orphans", "end_descendants"):
        monkeypatch.setattr(simulation, name, lambda: None)

    def simulate_on(fake: FakeSuperLink) -> list[str]:
        shown: list[str] = []
        monkeypatch.setattr(simulation, "start_superlink", lambda *_arguments: fake)
        simulate(plan, Machine({}, 1), tmp_path / "log", shown.append)
        return shown

    return simulate_on


def test_a_run_whose_ray_was_too_slow_begins_again(
    run: Callable[[FakeSuperLink], list[str]],
) -> None:
    fake = FakeSuperLink([(TOO_SLOW, FAILED), ("all is well", COMPLETED)])
    assert any("attempt 2 of 3" in line for line in run(fake))
    assert fake.started == 2


def test_it_gives_up_after_three_attempts(run: Callable[[FakeSuperLink], list[str]]) -> None:
    fake = FakeSuperLink([(TOO_SLOW, FAILED)] * 4)
    with pytest.raises(SimulationError, match="why"):
        run(fake)
    assert fake.started == 3


def test_another_failure_is_not_tried_again(run: Callable[[FakeSuperLink], list[str]]) -> None:
    fake = FakeSuperLink([("DataError: nothing there", FAILED)] * 2)
    with pytest.raises(SimulationError, match="why"):
        run(fake)
    assert fake.started == 1


def test_there_are_no_more_actors_than_clients_or_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    assert default_actors(clients=3, cpu_threads=1) == 3
    assert default_actors(clients=100, cpu_threads=1) == 8
    assert default_actors(clients=100, cpu_threads=3) == 2
    assert default_actors(clients=100, cpu_threads=16) == 1

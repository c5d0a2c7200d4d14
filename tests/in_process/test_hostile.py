"""Whatever one site sends, the others' run ends with the bits it has without that site."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from common.models import load_model
from server_app.errors import NOTHING_TO_RESUME, PERMANENT
from server_app.rounds.federation import RoundFailedError
from tests.in_process.grid import FakeClock, Fault, never, run_in_process
from tests.in_process.hostile import REFUSED, Attack

CLIENTS, HOSTILE = 4, 1
AT_ONCE = 8
GROUPS = [sorted(REFUSED)[start : start + AT_ONCE] for start in range(0, len(REFUSED), AT_ONCE)]
SETTINGS = {
    "algorithm": "fedgen",
    "model.name": "fedgen-cnn",
    "fedgen.server-steps": 2,
    "data.partition": "iid",
    "data.fraction": 0.2,
    "train.local-steps": 2,
    "server.fraction-evaluate": 0.0,
    "server.straggler-grace": 1.0,
    "num-rounds": AT_ONCE,
    "experiment": "exp",
}


def run(tmp_path: Path, changes: Sequence[Attack | Callable[..., None]]) -> Path:
    """Let the hostile site make one change in each round, and return the folder."""
    faults = [Fault(HOSTILE, change, {n}) for n, change in enumerate(changes, start=1)]  # type: ignore[arg-type]
    settings = SETTINGS | {"num-rounds": len(changes)}
    return run_in_process(settings, CLIENTS, tmp_path, faults=faults, clock=FakeClock().clock())


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the final model."""
    return load_model(folder / "final").state_dict()


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return runs of so many rounds in which the hostile site never answers, each made once."""
    made: dict[int, Path] = {}

    def make(rounds: int) -> Path:
        if rounds not in made:
            made[rounds] = run(tmp_path_factory.mktemp("silent"), [never] * rounds)
        return made[rounds]

    return make


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
def test_an_attack_is_refused_with_its_reason_and_changes_no_bit(
    tmp_path: Path,
    group: list[str],
    silent: Callable[[int], Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="moonflower")
    folder = run(tmp_path, [REFUSED[name] for name in group])
    for name, line in zip(group, lines_of(folder), strict=True):
        assert list(line["refused"]) == [f"client-{HOSTILE:04d}"], name
        (reason,) = line["refused"].values()
        assert reason.isprintable(), name
        assert 0 < len(reason) < 620, name
    for record in caplog.records:
        assert all(part.isprintable() for part in record.getMessage().split("\n"))
    expected = weights(silent(len(group)))
    assert all(torch.equal(tensor, expected[key]) for key, tensor in weights(folder).items())


def test_a_site_has_no_say_in_whether_a_run_that_failed_is_tried_again(tmp_path: Path) -> None:
    settings = SETTINGS | {"num-rounds": 1, "server.min-replies": CLIENTS}
    with pytest.raises(RoundFailedError, match="PWNED") as caught:
        run_in_process(settings, CLIENTS, tmp_path, faults=[Fault(HOSTILE, REFUSED["error"])])
    assert PERMANENT not in str(caught.value)
    assert NOTHING_TO_RESUME not in str(caught.value)

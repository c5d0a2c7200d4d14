"""The newest checkpoint is damaged: the run goes on from the one before, with the same result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from tests.in_process.reference import SETTINGS, differences
from tests.real.app_copy import AppCopy, Fault, make_app
from tests.real.loopback import Loopback

EXPERIMENT = "damaged"


@pytest.fixture(scope="module")
def interrupted(federation: Loopback, tmp_path_factory: pytest.TempPathFactory) -> AppCopy:
    """A run that ended in round 3; its results and the clients' states are kept aside."""
    app = make_app(tmp_path_factory.mktemp("app"), [Fault("sending", "server", 3, "kill")])
    run = federation.submit(app.folder, {**SETTINGS, "experiment": EXPERIMENT})
    run.wait()
    for kept, used in _folders(federation, app):
        shutil.copytree(used, kept)
    return app


def _folders(federation: Loopback, app: AppCopy) -> list[tuple[Path, Path]]:
    """Return where the run's files are kept aside, and where they belong."""
    aside = app.folder.parent / "aside"
    states = [federation.state(index) for index in range(federation.clients)]
    return [(aside / root.name, root / EXPERIMENT) for root in (federation.output, *states)]


def _truncate(checkpoint: Path) -> None:
    file = _largest(checkpoint)
    file.write_bytes(file.read_bytes()[:-100])


def _flip(checkpoint: Path) -> None:
    file = _largest(checkpoint)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _largest(checkpoint: Path) -> Path:
    return max((path for path in checkpoint.iterdir()), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(
    "damage",
    [
        _flip,
        pytest.param(_truncate, marks=pytest.mark.long),
        pytest.param(shutil.rmtree, marks=pytest.mark.long),
    ],
)
def test_a_damaged_newest_checkpoint_costs_one_more_round(
    federation: Loopback,
    undisturbed: dict[str, Tensor],
    interrupted: AppCopy,
    damage: Callable[[Path], None],
) -> None:
    for kept, used in _folders(federation, interrupted):
        shutil.rmtree(used)
        shutil.copytree(kept, used)
    checkpoints = federation.output / EXPERIMENT / "checkpoints"
    newest = max(path for path in checkpoints.iterdir() if path.name.startswith("round-"))
    assert newest.name == "round-000002"
    damage(newest)

    resumed = federation.submit(
        interrupted.folder, {**SETTINGS, "experiment": EXPERIMENT, "resume": True}
    )
    resumed.wait()
    assert "round 1/3" not in resumed.log
    assert "round 2/3" in resumed.log
    if damage is not shutil.rmtree:
        assert "damaged" in resumed.log
    assert [line["round"] for line in resumed.lines()] == [1, 2, 3]
    assert differences(resumed.final(), undisturbed) == []

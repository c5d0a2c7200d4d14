"""``moonflower evaluate``: a saved model on one site's data, as its clients measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from common.data import load_client_data
from common.node import Folders, Node
from common.tasks import build_task
from scripts.moonflower.commands import app
from tests.scripts.models.made import IMAGES, ROWS, save
from tests.settings import make_settings

OWN_IMAGES = IMAGES | {
    "data.source": "npz",
    "data.class-names": "",
    "data.validation-fraction": 0.4,
}


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def scores(*arguments: object) -> Any:
    result = measure(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def write(path: Path, count: int, labels: list[int] | None = None) -> Path:
    path.parent.mkdir(exist_ok=True)
    random = np.random.default_rng(count)
    x = random.integers(0, 256, (count, 1, 9, 9), dtype=np.uint8)
    np.savez(path, x=x, y=np.resize(labels or [0, 1], count))
    return path.parent


def test_the_test_set_comes_first_then_what_a_site_validates_on(tmp_path: Path) -> None:
    save(tmp_path / "best", OWN_IMAGES)
    data = write(tmp_path / "site" / "train.npz", 30)
    found = scores(tmp_path / "best", "--data-dir", data)
    assert found["split"] == "validation"
    write(tmp_path / "site" / "test.npz", 11)
    found = scores(tmp_path / "best", "--data-dir", data)
    assert (found["split"], found["examples"]) == ("test", 11)


def test_validation_is_what_the_client_keeps_from_training(tmp_path: Path) -> None:
    model = save(tmp_path / "best", OWN_IMAGES)
    data = write(tmp_path / "site" / "train.npz", 30)
    found = scores(tmp_path / "best", "--data-dir", data, "--split", "validation")
    settings = make_settings(**OWN_IMAGES)
    folders = Folders(data, tmp_path / "state", tmp_path / "output")
    node = Node("site-a", None, None, torch.device("cpu"), folders)
    own, task = load_client_data(settings, node).evaluation, build_task(settings)
    assert 0 < len(own) < 30
    expected = task.score(task.measure(model, own)).values
    assert found["scores"] == json.loads(json.dumps(expected))


def test_all_is_training_and_test_set_together(tmp_path: Path) -> None:
    save(tmp_path / "best", OWN_IMAGES)
    data = write(tmp_path / "site" / "train.npz", 30)
    write(tmp_path / "site" / "test.npz", 11)
    found = scores(tmp_path / "best", "--data-dir", data, "--split", "all")
    assert (found["examples"], found["scores"]["examples"]) == (41, 41)
    assert not (tmp_path / "moonflower" / "state").exists(), "nothing is left behind"


def test_a_score_that_is_not_defined_comes_with_its_reason(tmp_path: Path) -> None:
    save(tmp_path / "best", ROWS)
    (tmp_path / "site").mkdir()
    np.savez(tmp_path / "site" / "test.npz", x=np.ones((5, 3)), y=np.full(5, 2.0))
    arguments = tmp_path / "best", "--data-dir", tmp_path / "site"
    found = scores(*arguments)
    assert found["scores"]["r2"] is None
    assert found["undefined"]["r2"] == "all targets are equal"
    shown = measure(*arguments).stdout
    assert "- (all targets are equal)" in shown
    assert "rmse" in shown


def test_scores_by_class_are_shown_by_name(tmp_path: Path) -> None:
    save(tmp_path / "best", IMAGES)
    data = write(tmp_path / "site" / "test.npz", 4, labels=[0])
    changes = "-c", "data.source=npz", "-c", "data.class-names=''"
    shown = measure(tmp_path / "best", "--data-dir", data, *changes).stdout
    assert "4 examples, split 'test'" in shown
    assert "recall" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "test"], "there is no test set here"),
        (
            ["-c", "data.validation-fraction=0 data.client-test=global"],
            "the validation split is empty",
        ),
        (["-c", "data.features=3"], "the settings have"),
        (["-c", "nonsense"], "it takes key=value"),
    ],
)
def test_what_can_t_be_measured_ends_with_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    save(tmp_path / "best", OWN_IMAGES)
    data = write(tmp_path / "site" / "train.npz", 5)
    result = measure(tmp_path / "best", "--data-dir", data, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_shared_source_has_no_validation_of_its_own(tmp_path: Path) -> None:
    save(tmp_path / "best", {"model.name": "mlp"})
    assert scores(tmp_path / "best")["examples"] == 359
    result = measure(tmp_path / "best", "--split", "validation")
    assert "which is no site's own: choose --split test or all" in result.stderr

"""A saved model is found by what a person calls it, and knows its run's settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from common.config import SettingsError
from common.models import SavedModelError
from scripts.moonflower.models.opened import open_model
from tests.scripts.models.made import IMAGES, ROWS, flat_settings, save


def test_a_folder_that_went_elsewhere_is_enough(tmp_path: Path) -> None:
    save(tmp_path / "exp" / "best", IMAGES)
    shutil.move(tmp_path / "exp" / "best", tmp_path / "elsewhere")
    opened = open_model(tmp_path / "elsewhere")
    assert opened.classes == ("cat", "dog")
    assert opened.settings.data.source == "folder"
    assert opened.task.answer == "probabilities"


def test_classes_without_names_are_numbers_and_numbers_are_no_classes(tmp_path: Path) -> None:
    save(tmp_path / "a", IMAGES | {"data.class-names": ""})
    save(tmp_path / "b", ROWS)
    assert open_model(tmp_path / "a").classes == ("0", "1")
    assert open_model(tmp_path / "b").classes == ()


def test_an_experiment_means_its_best_model_or_its_final_one(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    save(tmp_path / "final", IMAGES)
    assert open_model(tmp_path).saved.folder == tmp_path / "final"
    save(tmp_path / "best", IMAGES)
    assert open_model(tmp_path).saved.folder == tmp_path / "best"
    # As a run leaves it that is killed while it replaces best/.
    (tmp_path / "best").rename(tmp_path / "best.previous")
    assert open_model(tmp_path).saved.folder == tmp_path / "best.previous"


def test_a_model_of_0_1_has_its_settings_beside_its_folder(tmp_path: Path) -> None:
    save(tmp_path / "best", IMAGES, with_settings=False)
    with pytest.raises(SavedModelError, match=r"older Moonflower.*settings\.json there"):
        open_model(tmp_path / "best")
    then = flat_settings(IMAGES)
    del then["task.name"]  # new since: the default
    then["moon.forgotten"] = 1  # gone since
    (tmp_path / "settings.json").write_text(json.dumps({"settings": then}))
    assert open_model(tmp_path / "best").settings.task.name == "classification"


def test_changes_are_checked(tmp_path: Path) -> None:
    save(tmp_path / "best", IMAGES)
    changed = open_model(tmp_path / "best", {"data.source": "npz", "data.class-names": ""})
    assert changed.settings.data.source == "npz"
    with pytest.raises(SettingsError, match=r"data\.sourcery: unknown setting"):
        open_model(tmp_path / "best", {"data.sourcery": "npz"})
    with pytest.raises(SettingsError, match=r"images of 1x8x8 .* and not images of 1x9x9"):
        open_model(tmp_path / "best", {"data.image-shape": "1x8x8"})


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "best", IMAGES)
    weights = tmp_path / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(SavedModelError, match="is damaged"):
        open_model(tmp_path / "best")

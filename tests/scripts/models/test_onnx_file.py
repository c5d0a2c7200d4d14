"""An exported model gives what the saved one gives, and says what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from common.config import SettingsError
from common.data import DataSpec
from common.data.targets import ClassLabels, Numbers, Targets
from common.models import MODELS, SavedModel, build_model
from common.tasks import TASKS
from scripts.moonflower.models import onnx_file
from scripts.moonflower.models.onnx_file import ExportError, export, largest_difference
from scripts.moonflower.models.opened import OpenedModel, open_model
from tests.common.data.kinds.one_of_each import EXAMPLES
from tests.common.models.tiny_encoder import write_encoder
from tests.scripts.models.made import IMAGES, ROWS, save
from tests.settings import make_settings

PAIRS = [(name, kind) for name, entry in sorted(MODELS.items()) for kind in entry.kinds]


def opened_model(name: str, kind: str, targets: Targets, task: str, **model: object) -> OpenedModel:
    """Return a model as it is after some examples, so that BatchNorm's statistics are its own."""
    settings = make_settings(**{"model.name": name}, **model)
    spec = DataSpec("made up", EXAMPLES[kind], targets)
    model = build_model(settings.model, spec, seed=1)
    with torch.no_grad():
        model(spec.kind.prepare(torch.from_numpy(drawn(spec, 8))))
    saved = SavedModel(Path("best"), model.eval(), spec, {}, "0" * 64)
    chosen = settings.task.model_copy(update={"name": task})
    return OpenedModel(saved, settings, TASKS[task](chosen, spec, None))


def drawn(spec: DataSpec, count: int, dtype: str = "") -> Any:
    return spec.kind.drawn(count, dtype or spec.kind.dtypes[0], np.random.default_rng(5))


def run(blob: bytes, x: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(blob)
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_model_gives_the_same_as_onnx(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {}
    if name == "hf-encoder":
        monkeypatch.setenv("MOONFLOWER_MODELS_DIR", str(tmp_path))
        digest = write_encoder(tmp_path, vocabulary=299)
        model = {"model.folder": "tiny", "model.folder-sha256": digest}
    opened = opened_model(name, kind, ClassLabels(4), "classification", **model)
    exported = export(opened, drawn(opened.spec, 9))
    assert exported.difference <= 1e-4
    for count in (1, 5):  # of any number of examples
        x = drawn(opened.spec, count)
        found = run(exported.blob, x)
        prepared = opened.spec.kind.prepare(torch.from_numpy(x.copy()))
        with torch.no_grad():
            z = opened.saved.model.encoder(prepared)
            logits = opened.saved.model.predictor(z)
        expected = {"probabilities": logits.softmax(1), "output": logits, "z": z}
        assert found.keys() == expected.keys()
        for each, value in expected.items():
            assert largest_difference(found[each], value.numpy()) <= 1e-4


@pytest.mark.slow
def test_a_regression_gives_numbers() -> None:
    opened = opened_model("mlp", "table", Numbers(), "regression")
    x = drawn(opened.spec, 3)
    found = run(export(opened, x).blob, x)
    assert found["numbers"].shape == (3,)
    assert found["output"].shape == (3, 1)


@pytest.mark.slow
def test_images_stored_as_floats_give_what_their_bytes_give() -> None:
    opened = opened_model("fedgen-cnn", "image", ClassLabels(4), "classification")
    pixels = drawn(opened.spec, 4)
    floats = (pixels / np.float32(255)).astype(np.float32)
    of_bytes = run(export(opened, pixels).blob, pixels)["output"]
    of_floats = run(export(opened, floats).blob, floats)["output"]
    assert largest_difference(of_floats, of_bytes) <= 1e-4


def test_the_type_of_its_input_is_the_kind_s(tmp_path: Path) -> None:
    save(tmp_path / "a", IMAGES)
    save(tmp_path / "b", ROWS)
    assert onnx_file.chosen_dtype(open_model(tmp_path / "a"), None) == "uint8"
    assert onnx_file.chosen_dtype(open_model(tmp_path / "a"), "float32") == "float32"
    with pytest.raises(SettingsError, match="rows of numbers are stored as float32"):
        onnx_file.chosen_dtype(open_model(tmp_path / "b"), "uint8")


def test_a_model_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opened_model("mlp", "table", ClassLabels(2), "classification")

    kind = type(opened.spec.kind)
    prepare: Callable[[object, Tensor], Tensor] = kind.prepare

    def other(self: object, stored: Tensor) -> Tensor:
        # As it is exported, and then as it is compared.
        return prepare(self, stored) + (0 if torch.compiler.is_exporting() else 0.01)

    monkeypatch.setattr(kind, "prepare", other)
    with pytest.raises(ExportError, match=r"differs from the saved one by .* Nothing was written"):
        export(opened, drawn(opened.spec, 4))


def test_a_model_that_takes_its_batch_size_for_a_number_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = opened_model("mlp", "table", ClassLabels(2), "classification")
    kind = type(opened.spec.kind)
    prepare: Callable[[object, Tensor], Tensor] = kind.prepare
    monkeypatch.setattr(
        kind, "prepare", lambda self, x: prepare(self, x) + torch.zeros(len(x)).mean()
    )
    with pytest.raises(ExportError, match="exported for batches of 2 only"):
        export(opened, drawn(opened.spec, 4))


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    save(tmp_path / "best", IMAGES)
    opened = open_model(tmp_path / "best")
    blob = export(opened, drawn(opened.spec, 3)).blob
    about = onnxruntime.InferenceSession(blob).get_modelmeta().custom_metadata_map
    assert json.loads(about["class-names"]) == ["cat", "dog"]
    assert json.loads(about["data"])["shape"] == [1, 9, 9]
    assert about["weights-sha256"] == opened.saved.sha256
    assert (about["experiment"], about["task"]) == ("exp", "classification")
    (opset,) = onnx.load_from_string(blob).opset_import
    assert opset.version == onnx_file.OPSET


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([1.0, 2.5], [1.0, 2.0], 0.25),  # 0.5 of 2
        ([0.2], [0.1], 0.1),  # below 1 as it is
        ([np.nan], [0.0], np.nan),
        ([1.0, 2.0], [1.0], np.inf),
    ],
)
def test_differences_are_relative_beyond_one(
    found: list[float], expected: list[float], difference: float
) -> None:
    result = largest_difference(np.array(found), np.array(expected))
    assert result == pytest.approx(difference, nan_ok=True)

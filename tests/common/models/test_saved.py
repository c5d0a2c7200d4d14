"""A saved model comes back bit for bit, and a broken one is refused with the reason."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional as F

from common import files
from common.config import ModelSettings
from common.data import DataSpec
from common.data.kinds import Image
from common.data.targets import ClassLabels
from common.models import (
    SavedModelError,
    SplitModel,
    build_model,
    load_facts,
    load_model,
    read_saved,
)
from common.models.saved import save_model
from common.storage import write_tensors
from tests.settings import make_settings

SPEC = DataSpec("test-images", Image((1, 9, 9), (0.1 + 0.2,), (1 / 3,)), ClassLabels(3))


def settings_of(**changes: Any) -> ModelSettings:
    table = {"name": "fedgen-cnn"} | changes
    return make_settings(**{f"model.{key}": value for key, value in table.items()}).model


def images(count: int = 8) -> Tensor:
    return torch.randn(count, *SPEC.kind.shape, generator=torch.Generator().manual_seed(7))


def trained(settings: ModelSettings, seed: int = 0, steps: int = 3) -> SplitModel:
    """Return a model after steps, so that weights and statistics are not the initial ones."""
    model = build_model(settings, SPEC, seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(images()), torch.arange(8) % 3).backward()
        optimiser.step()
    return model


def saved_model(folder: Path, seed: int = 0, **facts: object) -> SplitModel:
    model = trained(settings_of(), seed)
    save_model(folder, model, settings_of(), SPEC, facts)
    return model


def same_logits(first: SplitModel, second: SplitModel) -> bool:
    return torch.equal(first.eval()(images()), second.eval()(images()))


def edit(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "group"},
        {"projection-dim": 5},
        {"predictor-layers": 2},
        {"name": "mlp"},
        {"name": "resnet18"},
    ],
    ids=str,
)
def test_logits_come_back_bit_for_bit_from_the_folder_alone(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = settings_of(**changes)
    model = trained(settings)
    save_model(tmp_path / "best", model, settings, SPEC, {})
    shutil.move(tmp_path / "best", tmp_path / "elsewhere")
    loaded = load_model(tmp_path / "elsewhere")
    assert not loaded.training
    assert same_logits(loaded, model)


def test_the_folder_may_be_the_one_that_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved_model(tmp_path / "best")
    monkeypatch.chdir(tmp_path / "best")
    assert same_logits(load_model("."), model)


def test_batch_norm_statistics_come_back(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "best")
    loaded = load_model(tmp_path / "best")
    names = model.buffer_names()
    assert len(names) == 6
    assert all(torch.equal(loaded.state_dict()[name], model.state_dict()[name]) for name in names)
    assert loaded.state_dict()["encoder.features.1.num_batches_tracked"].item() == 3


@pytest.mark.parametrize("name", ["", "model.json", "model.safetensors"])
def test_the_folder_or_either_file_may_be_given(tmp_path: Path, name: str) -> None:
    model = saved_model(tmp_path / "best")
    assert same_logits(load_model(str(tmp_path / "best" / name)), model)


def test_what_is_known_of_a_model_comes_with_it(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "best", round=3)
    saved = read_saved(tmp_path / "best")
    assert (saved.folder, saved.spec, saved.facts) == (tmp_path / "best", SPEC, {"round": 3})
    assert same_logits(saved.model, model)
    written = (tmp_path / "best" / "model.safetensors").read_bytes()
    assert saved.sha256 == hashlib.sha256(written).hexdigest()


def test_the_json_says_what_was_saved(tmp_path: Path) -> None:
    saved_model(tmp_path / "best", round=12, accuracy=0.1 + 0.2)
    description = json.loads((tmp_path / "best/model.json").read_text())
    assert description["format"] == 2
    assert description["moonflower"] == "0.1.0"
    assert description["model"]["batch-norm-buffers"] == "averaged"
    assert description["data"] == {
        "name": "test-images",
        "kind": "image",
        "shape": [1, 9, 9],
        "mean": [0.1 + 0.2],
        "std": [1 / 3],
        "white": 255.0,
        "num-classes": 3,
    }
    assert load_facts(tmp_path / "best") == {"round": 12, "accuracy": 0.1 + 0.2}


def test_saving_again_replaces_the_model_and_leaves_nothing_beside(tmp_path: Path) -> None:
    saved_model(tmp_path / "best", seed=1, round=1)
    second = saved_model(tmp_path / "best", seed=2, round=2)
    assert same_logits(load_model(tmp_path / "best"), second)
    assert load_facts(tmp_path / "best") == {"round": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_full_disk_leaves_the_old_model_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = saved_model(tmp_path / "best", seed=1, round=1)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            saved_model(tmp_path / "best", seed=2, round=2)
    assert same_logits(load_model(tmp_path / "best"), first)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs."""


def kill_at_rename(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rename, calls = os.rename, []

    def stop(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == number:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(os, "rename", stop)
    # A killed process tidies nothing up.
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(files, "recover_folder", lambda _: None)


@pytest.mark.parametrize("number", [1, 2])
def test_a_process_killed_while_replacing_leaves_a_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    first = saved_model(tmp_path / "best", seed=1, round=1)
    with monkeypatch.context() as dying:
        kill_at_rename(dying, number)
        with pytest.raises(Killed):
            saved_model(tmp_path / "best", seed=2, round=2)
    assert (tmp_path / "best").exists() == (number == 1)
    assert same_logits(load_model(tmp_path / "best"), first)
    assert load_facts(tmp_path / "best") == {"round": 1}

    third = saved_model(tmp_path / "best", seed=3, round=3)
    assert same_logits(load_model(tmp_path / "best"), third)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_the_old_model_is_put_back_when_the_next_save_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = saved_model(tmp_path / "best", seed=1)
    (tmp_path / "best").rename(tmp_path / "best.previous")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        saved_model(tmp_path / "best", seed=2)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert same_logits(load_model(tmp_path / "best"), first)


def test_one_changed_byte_of_the_weights_is_detected(tmp_path: Path) -> None:
    saved_model(tmp_path / "best")
    path = tmp_path / "best/model.safetensors"
    blob = bytearray(path.read_bytes())
    blob[-3] ^= 4
    path.write_bytes(bytes(blob))
    with pytest.raises(SavedModelError, match=r"model\.safetensors is damaged.*SHA-256"):
        load_model(tmp_path / "best")


def test_the_weights_of_another_save_are_refused(tmp_path: Path) -> None:
    saved_model(tmp_path / "best", seed=1)
    saved_model(tmp_path / "final", seed=2)
    shutil.copy(tmp_path / "final/model.safetensors", tmp_path / "best")
    with pytest.raises(SavedModelError, match=r"not the one that model\.json was written for"):
        load_model(tmp_path / "best")


def test_a_description_of_another_model_is_refused(tmp_path: Path) -> None:
    saved_model(tmp_path / "best")
    description = json.loads((tmp_path / "best/model.json").read_text())
    edit(tmp_path / "best", model=description["model"] | {"name": "mlp"})
    with pytest.raises(SavedModelError, match="does not fit the model"):
        load_model(tmp_path / "best")
    edit(tmp_path / "best", model=description["model"] | {"name": "vgg"})
    with pytest.raises(SavedModelError, match=r"name 'vgg': Input should be .*'fedgen-cnn'"):
        load_model(tmp_path / "best")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    saved_model(tmp_path / "best")
    edit(tmp_path / "best", format=3, moonflower="9.0")
    with pytest.raises(SavedModelError, match=r"format 3, written by Moonflower 9\.0.*up to 2"):
        load_model(tmp_path / "best")


def test_a_model_of_version_0_1_whose_weights_carry_their_own_hash_too_is_loaded(
    tmp_path: Path,
) -> None:
    model = saved_model(tmp_path / "best")
    weights = tmp_path / "best/model.safetensors"
    write_tensors(weights, model.state_dict(), {})
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    description = json.loads((tmp_path / "best/model.json").read_text())
    del description["model"]["predictor-layers"]
    edit(tmp_path / "best", format=1, model=description["model"])
    edit(tmp_path / "best", weights={"file": weights.name, "sha256": digest})
    assert same_logits(load_model(tmp_path / "best"), model)


@pytest.mark.parametrize("call", [load_model, load_facts])
def test_a_missing_model_is_explained(tmp_path: Path, call: Any) -> None:
    with pytest.raises(SavedModelError, match=r"no saved model in .*none"):
        call(tmp_path / "none")


def test_missing_weights_are_explained(tmp_path: Path) -> None:
    saved_model(tmp_path / "best")
    (tmp_path / "best/model.safetensors").unlink()
    with pytest.raises(SavedModelError, match=r"weights in .* can't be read"):
        load_model(tmp_path / "best")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": 1}', '{"format": 1, "model": 3}'],
)
def test_a_damaged_description_is_named(tmp_path: Path, text: str) -> None:
    saved_model(tmp_path / "best")
    (tmp_path / "best/model.json").write_text(text)
    with pytest.raises(SavedModelError, match=r"model\.json is damaged"):
        load_model(tmp_path / "best")


@pytest.mark.parametrize("part", ["model", "data"])
def test_a_description_without_its_content_is_named(tmp_path: Path, part: str) -> None:
    saved_model(tmp_path / "best")
    edit(tmp_path / "best", **{part: {}})
    with pytest.raises(SavedModelError, match="does not describe a model"):
        load_model(tmp_path / "best")


def test_a_model_whose_statistics_stayed_on_the_clients_is_refused(tmp_path: Path) -> None:
    settings = settings_of(**{"batch-norm-buffers": "local"})
    model = trained(settings)
    save_model(tmp_path / "best", model, settings, SPEC, {"round": 1})
    with pytest.raises(SavedModelError, match="never left the clients"):
        load_model(tmp_path / "best")
    assert same_logits(load_model(tmp_path / "best", allow_private_parts=True), model)
    assert load_facts(tmp_path / "best") == {"round": 1}


@pytest.mark.parametrize("changes", [{"norm": "group"}, {"name": "mlp"}], ids=str)
def test_a_model_without_statistics_has_none_to_miss(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = settings_of(**{"batch-norm-buffers": "local"}, **changes)
    model = trained(settings)
    save_model(tmp_path / "best", model, settings, SPEC, {})
    assert same_logits(load_model(tmp_path / "best"), model)


def test_of_a_model_whose_encoders_stayed_on_the_clients_the_predictor_is_saved(
    tmp_path: Path,
) -> None:
    settings = settings_of().model_copy(update={"sharing": "predictor"})
    model = trained(settings)
    save_model(tmp_path / "best", model, settings, SPEC, {})
    with pytest.raises(SavedModelError, match="holds a predictor only"):
        load_model(tmp_path / "best")
    loaded = load_model(tmp_path / "best", allow_private_parts=True)
    z = torch.ones(1, model.latent_dim)
    assert torch.equal(loaded.predictor(z), model.predictor(z))
    written = safetensors.torch.load_file(tmp_path / "best" / "model.safetensors")
    assert set(written) == {"predictor.weight", "predictor.bias"}

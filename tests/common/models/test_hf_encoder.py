"""A Hugging Face encoder: the same folder everywhere, masks right, frozen layers, nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from common.config import SettingsError
from common.data import DataSpec
from common.data.kinds import Tokens
from common.data.targets import ClassLabels
from common.models import SplitModel, build_model, check_model, load_model, save_model
from tests.common.models.tiny_encoder import write_encoder
from tests.settings import make_settings

pytestmark = pytest.mark.slow  # transformers takes seconds to import

SPEC = DataSpec("text", Tokens(10, 61, "tiny.json", "0" * 64), ClassLabels(3))


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MOONFLOWER_MODELS_DIR", str(tmp_path))
    return write_encoder(tmp_path)


def settings_of(digest: str, **changes: Any) -> Any:
    named = {"name": "hf-encoder", "folder": "tiny", "folder-sha256": digest, **changes}
    return make_settings(**{f"model.{key}": value for key, value in named.items()}).model


def build(digest: str, spec: DataSpec = SPEC, **changes: Any) -> SplitModel:
    return build_model(settings_of(digest, **changes), spec, 0)


def test_ids_are_the_tokenisers_plus_one_and_padding_changes_nothing(
    digest: str, tmp_path: Path
) -> None:
    from transformers import BertModel

    model = build(digest).eval()
    ids = torch.tensor([[3, 60, 1, 0, 0, 0, 0, 0, 0, 0], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]])
    plain = BertModel.from_pretrained(tmp_path / "tiny").eval()
    with torch.no_grad():
        wanted = plain(torch.tensor([[2, 59, 0]])).last_hidden_state.mean(dim=1)
        found = model.encoder(ids.int())[:1]
        empty = model(torch.zeros(2, 10, dtype=torch.int32))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert empty.isfinite().all()


def test_every_parameter_learns_but_those_of_frozen_layers(digest: str) -> None:
    ids = torch.randint(1, 61, (4, 10), generator=torch.Generator().manual_seed(0)).int()
    for frozen, expected in ((0, set()), (1, {"embeddings", "layer.0"})):
        model = build(digest, **{"freeze-layers": frozen})
        model(ids).square().sum().backward()
        still = [name for name, value in model.named_parameters() if value.grad is None]
        parts = {part for part in ("embeddings", "layer.0") for name in still if part in name}
        assert parts == expected
        assert all(any(part in name for part in expected) for name in still)


def test_another_folder_than_the_runs_is_refused_with_both_sums(
    digest: str, tmp_path: Path
) -> None:
    check_model(settings_of(digest))
    command = "sha256sum config.json model.safetensors | sha256sum"
    said = subprocess.check_output(["sh", "-c", command], cwd=tmp_path / "tiny", text=True)
    assert said.split()[0] == digest
    other = write_encoder(tmp_path, seed=1)
    assert other != digest
    with pytest.raises(SettingsError, match=rf"is {other}, and model.folder-sha256 is '{digest}'"):
        check_model(settings_of(digest))
    (tmp_path / "tiny/model.safetensors").unlink()
    with pytest.raises(SettingsError, match="Put the encoder's config"):
        build(digest)


def test_code_in_the_folder_is_never_run(digest: str, tmp_path: Path) -> None:
    from common.models.hf_encoder import folder_sha256

    path = tmp_path / "tiny/config.json"
    config = json.loads(path.read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    path.write_text(json.dumps(config))
    (tmp_path / "tiny/evil.py").write_text("raise SystemExit('this ran')")
    with pytest.raises(SettingsError, match="can't be read"):
        build(folder_sha256(tmp_path / "tiny"))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Tokens(10, 62, "tiny.json"), "vocabulary-size to at most 61"),
        (Tokens(13, 61, "tiny.json"), "max-length to at most 12"),
        (Tokens(10, 61, "words"), "these are hashes of words"),
    ],
)
def test_data_that_it_can_t_read_are_refused(digest: str, kind: Tokens, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        build(digest, DataSpec("text", kind, ClassLabels(3)))


def test_more_frozen_layers_than_there_are_is_refused(digest: str) -> None:
    with pytest.raises(SettingsError, match="this encoder has 2 layers"):
        build(digest, **{"freeze-layers": 3})


def test_a_saved_one_is_loaded_with_the_weights_it_had(digest: str, tmp_path: Path) -> None:
    model = build(digest).eval()
    with torch.no_grad():
        model.predictor.weight.add_(1)
    save_model(tmp_path / "best", model, settings_of(digest), SPEC, {})
    ids = torch.arange(1, 11).reshape(1, 10).int()
    assert torch.equal(load_model(tmp_path / "best")(ids), model(ids))
    with torch.device("meta"):
        assert build(digest).predictor.weight.is_meta

"""The model that a node is to train, before any run."""

from __future__ import annotations

import pytest

from common.config import SettingsError
from scripts.moonflower.doctor.findings import Finding
from scripts.moonflower.doctor.model import check_model
from tests.settings import make_settings

SHARED = {"algorithm": "fedavg", "model.sharing": "predictor", "model.projection-dim": 16}


@pytest.fixture(autouse=True)
def node_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a bundle's node.env does."""
    monkeypatch.setenv("MOONFLOWER_CLIENT_NAME", "clinic-a")
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cpu")
    monkeypatch.setenv("MOONFLOWER_MODEL_NAME", "")


def one(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_the_run_s_model_is_named_with_its_size() -> None:
    finding = one(list(check_model(make_settings(**{"model.name": "fedgen-cnn"}))))
    # On 1x8x8: conv 60 + norm 12, conv 880 + norm 32, linear 64 x 32 + 32, predictor 32 x 10 + 10.
    assert finding.status == "ok"
    assert finding.found == "fedgen-cnn (the run's), 3,394 parameters, float32"


def test_a_node_s_own_encoder_is_built_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONFLOWER_MODEL_NAME", "fedgen-cnn")
    finding = one(list(check_model(make_settings(**SHARED))))
    assert finding.status == "ok"
    assert finding.found.startswith("fedgen-cnn (this node's own encoder)")


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("no-such", SHARED, "which is unknown"),
        ("fedgen-cnn", {}, "shares the whole model"),
        ("moon-cnn", SHARED, "at least 16x16"),
        ("", {"train.precision": "float16"}, "needs a GPU"),
    ],
)
def test_what_the_run_would_refuse_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, object], said: str
) -> None:
    monkeypatch.setenv("MOONFLOWER_MODEL_NAME", name)
    with pytest.raises(SettingsError, match=said):
        list(check_model(make_settings(**settings)))


def test_without_the_run_s_settings_a_name_that_is_no_model_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(check_model(None)) == []
    monkeypatch.setenv("MOONFLOWER_MODEL_NAME", "resnet18")
    assert list(check_model(None)) == []
    monkeypatch.setenv("MOONFLOWER_MODEL_NAME", "resnet-18")
    finding = one(list(check_model(None)))
    assert finding.status == "failed"
    assert "resnet18" in finding.remedy

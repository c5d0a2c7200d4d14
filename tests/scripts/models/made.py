"""Saved models for tests, untrained but for BatchNorm's statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.config import flat
from common.data import data_spec
from common.models import SplitModel, build_model, save_model
from tests.settings import make_settings

IMAGES: dict[str, Any] = {
    "model.name": "fedgen-cnn",
    "data.source": "folder",
    "data.image-shape": "1x9x9",
    "data.num-classes": 2,
    "data.class-names": "cat,dog",
}
ROWS: dict[str, Any] = {
    "task.name": "regression",
    "data.source": "npz",
    "data.kind": "table",
    "data.features": 3,
}
TABLE: dict[str, Any] = {
    "data.source": "table",
    "data.target": "ill",
    "data.numeric": "age",
    "data.categorical": "sex=f|m",
    "data.class-names": "no,yes",
    "data.num-classes": 2,
}
TEXTS: dict[str, Any] = {
    "model.name": "text-bag",
    "data.source": "text",
    "data.num-classes": 2,
    "data.class-names": "place,person",
    "data.max-length": 12,
}


def save(folder: Path, overrides: dict[str, Any], *, with_settings: bool = True) -> SplitModel:
    """Save a model as a run with these settings does, and return it."""
    settings = make_settings(**overrides)
    spec = data_spec(settings.data)
    model = build_model(settings.model, spec, seed=3)
    kind = spec.kind
    drawn = kind.drawn(16, kind.dtypes[0], np.random.default_rng(0))
    with torch.no_grad():
        model(kind.prepare(torch.from_numpy(drawn)))
    facts: dict[str, Any] = {"experiment": "exp", "algorithm": "moon", "round": 2}
    if with_settings:
        facts["settings"] = settings.model_dump(by_alias=True, exclude={"resume"})
    save_model(folder, model, settings.model, spec, facts)
    return model.eval()


def flat_settings(overrides: dict[str, Any]) -> dict[str, Any]:
    """Return what ``settings.json`` has under ``settings``, flat."""
    return flat(make_settings(**overrides).model_dump(by_alias=True))

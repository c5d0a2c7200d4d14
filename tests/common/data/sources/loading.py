"""Sources as clients see them: through ``load_split``, which also checks them."""

from __future__ import annotations

from typing import Any

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.prepared import load_split
from common.data.sources.base import Split
from common.node import Folders
from tests.settings import make_settings


def source(name: str, **overrides: Any) -> DataSettings:
    keys = {f"data.{key}": value for key, value in overrides.items()}
    return make_settings(**{"data.source": name} | keys).data


def site(name: str, shape: str = "1x6x5", classes: int = 2) -> DataSettings:
    return source(name, **{"image-shape": shape, "num-classes": classes})


def load(settings: DataSettings, folders: Folders, split: Split = "train") -> Arrays:
    prepared = load_split(settings, folders, split)
    assert prepared is not None
    return prepared.arrays

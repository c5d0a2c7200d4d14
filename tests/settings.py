"""Settings for tests: the defaults of pyproject.toml with overrides."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from common.config import Settings, flat, parse_settings

ROOT = Path(__file__).resolve().parent.parent


def default_run_config() -> dict[str, Any]:
    """Return pyproject's run config, flat, as Flower hands it to the apps."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return flat(config)


def make_run_config(**overrides: Any) -> dict[str, Any]:
    """Return the defaults with overrides, as ``make_run_config(**{"moon.mu": 5.0})``."""
    return default_run_config() | overrides


def make_settings(**overrides: Any) -> Settings:
    """Return validated settings, as ``make_settings(**{"moon.mu": 5.0})``."""
    return parse_settings(make_run_config(**overrides))

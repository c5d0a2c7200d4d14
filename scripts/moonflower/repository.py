"""Where the repository is and what it says: the command line runs the app from its source."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from common.config import flat

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ROOT / "scripts" / "presets"


def default_run_config() -> dict[str, Any]:
    """Return ``[tool.flwr.app.config]`` of pyproject.toml, flat (``{"moon.mu": 1.0}``)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return flat(project["tool"]["flwr"]["app"]["config"])

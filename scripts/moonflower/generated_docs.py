"""The pages and pictures of docs/ that are made from the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scripts.moonflower import house, round_picture, settings_docs
from scripts.moonflower.repository import ROOT


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each file and what has to stand in it."""
    docs = ROOT / "docs"
    yield docs / "settings.md", settings_docs.render()
    yield docs / "images" / "house.svg", house.draw(ROOT)
    yield docs / "images" / "round.svg", round_picture.draw((docs / "tour.md").read_text())

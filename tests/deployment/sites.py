"""Sites with examples of their own: scikit-learn's digits, divided by label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SITES = {"clinic-a": (0, 1, 2, 3), "clinic-b": (3, 4, 5, 6), "clinic-c": (6, 7, 8, 9, 0)}
"""The labels that each of them holds; where two hold one, each has every other example."""

SETTINGS: dict[str, Any] = {
    "algorithm": "moon+fedgen",
    "num-rounds": 2,
    "data.source": "npz",
    "data.image-shape": "1x8x8",
    "data.num-classes": 10,
    "train.local-epochs": 1,
    "fedgen.server-steps": 5,
    "server.fraction-evaluate": 0.0,
    "server.min-clients": len(SITES),
    # Everybody is needed: a round that lost somebody is run again, with the same result.
    "server.min-replies": len(SITES),
    "server.start-timeout": 600.0,
}


def write_sites(folder: Path) -> dict[str, Path]:
    """Write ``train.npz`` for each site, and return the folders by name."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.asarray(digits.images / 16.0, dtype=np.float32)
    labels = np.asarray(digits.target, dtype=np.int64)
    folders = {}
    for number, (name, held) in enumerate(SITES.items()):
        rows = np.flatnonzero(np.isin(labels, held))
        rows = rows[rows % len(SITES) != number]
        folders[name] = folder / name
        folders[name].mkdir(parents=True)
        np.savez(folders[name] / "train.npz", x=images[rows], y=labels[rows])
    return folders

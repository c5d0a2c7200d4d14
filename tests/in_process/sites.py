"""Sites with data of their own: digits, dealt out as the files that a person would bring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

SETTINGS: dict[str, Any] = {
    "data.source": "npz",
    "data.image-shape": "1x8x8",
    "data.num-classes": 10,
    "algorithm": "moon+fedgen",
    "num-rounds": 2,
    "train.local-epochs": 1,
    "fedgen.server-steps": 5,
    "server.min-clients": 2,
}
"""What the server says of the sites' data, and a short run on them."""


def digits(labels: Sequence[int], size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ``size`` images (bytes, ``[n, 8, 8]``) of ``labels``, and their labels."""
    whole = load_digits()
    rows = np.flatnonzero(np.isin(whole.target, labels))[:size]
    # 0 to 16 as bytes of 0 to 255
    return (whole.images[rows] * 255 / 16).astype(np.uint8), whole.target[rows].astype(np.int64)


def write_npz(folder: Path, labels: Sequence[int], size: int = 120, name: str = "train") -> Path:
    """Write ``train.npz``, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    images, targets = digits(labels, size)
    np.savez(folder / f"{name}.npz", x=images, y=targets)
    return folder


def write_images(folder: Path, labels: Sequence[int], size: int = 120) -> Path:
    """Write ``train/<class>/<n>.png`` with a folder for each of the ten classes."""
    for label in range(10):
        (folder / "train" / f"digit-{label}").mkdir(parents=True)
    for number, (image, label) in enumerate(zip(*digits(labels, size), strict=True)):
        Image.fromarray(image).save(folder / "train" / f"digit-{label}" / f"{number}.png")
    return folder

"""scikit-learn's embedded digits: 1,797 images, 1x8x8, values 0 to 16. Needs no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.package_versions import installed_version
from common.data.sources.base import Identity, Split
from common.seeding import numpy_generator

TEST_FRACTION = 0.2
SPLIT_SEED = 0
"""Not the run's seed: runs of all seeds are measured on one test set."""


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity:
    """Return the version of scikit-learn, which carries the images."""
    return [["scikit-learn", installed_version("scikit-learn")]]


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Return 80% (train) or 20% (test) of every label, always the same ones."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    is_test = _test_mask(labels)
    chosen = is_test if split == "test" else ~is_test
    return Arrays(digits.images[chosen].astype(np.uint8)[:, None], labels[chosen])


def _test_mask(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    generator = numpy_generator(SPLIT_SEED, "digits-split")
    mask = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        mask[rows[: round(TEST_FRACTION * len(rows))]] = True
    return mask

"""What a data set looks like to a model: shape, classes, normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from common.config import DataSettings


@dataclass(frozen=True)
class DataSpec:
    """Shape and normalisation of a data set.

    Pixel values are first scaled to [0, 1], then normalised as ``(value - mean) / std``.

    Attributes
    ----------
    name : str
        The source, as in ``data.source``.
    shape : tuple of int
        Channels, height, width.
    num_classes : int
        Labels are 0 to ``num_classes - 1``.
    mean, std : tuple of float
        One per channel, of values in [0, 1].
    """

    name: str
    shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


# Constants from where the comparisons come from: FedGen's published code for the MNISTs, MOON's
# for CIFAR-10; for CIFAR-100 the statistics of its training set, as in MOON's code.
_BUILT_IN = {
    spec.name: spec
    for spec in (
        # Mean and standard deviation of all 1,797 images.
        DataSpec("digits", (1, 8, 8), 10, (0.305,), (0.376,)),
        DataSpec("mnist", (1, 28, 28), 10, (0.5,), (0.5,)),
        DataSpec("fashion-mnist", (1, 28, 28), 10, (0.5,), (0.5,)),
        DataSpec(
            "cifar10",
            (3, 32, 32),
            10,
            (125.3 / 255, 123.0 / 255, 113.9 / 255),
            (63.0 / 255, 62.1 / 255, 66.7 / 255),
        ),
        DataSpec(
            "cifar100",
            (3, 32, 32),
            100,
            (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
            (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
        ),
    )
}


def data_spec(settings: DataSettings) -> DataSpec:
    """Return the spec of ``data.source``; no data are read.

    A site's own data (``folder``, ``npz``) have the shape and classes of the settings, with mean
    and standard deviation 0.5.
    """
    if not settings.is_site_data:
        return _BUILT_IN[settings.source]
    channels, height, width = (int(size) for size in settings.image_shape.split("x"))
    return DataSpec(
        name=settings.source,
        shape=(channels, height, width),
        num_classes=settings.num_classes,
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
    )


def white_level(name: str, dtype: np.dtype[np.generic]) -> float:
    """Return the stored value that stands for 1: 255 of bytes, 16 of the digits, 1 of floats."""
    if dtype != np.uint8:
        return 1.0
    return 16.0 if name == "digits" else 255.0

"""The small convolutional networks of the two papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from common.config import ModelSettings
from common.models.layers import check_batch_norm, finish, normalisation, refuse_shape, strided
from common.models.pooling import MaxPool2x2
from common.models.split import SplitModel

if TYPE_CHECKING:
    from common.data import DataSpec


def fedgen_cnn(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return FedGen's MNIST model (published code, ``Net``).

    Two 3x3 convolutions with stride 2 and padding 1 (6 and 16 channels), each with
    normalisation and ReLU, then a linear ``z`` of 32.

    Raises
    ------
    SettingsError
        With batch norm, images of at most 4x4.
    """
    channels, height, width = spec.kind.shape
    height, width = strided(strided(height)), strided(strided(width))
    check_batch_norm(settings, spec, height, width)
    features = nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=3, stride=2, padding=1),
        normalisation(settings.norm, 6),
        nn.ReLU(),
        nn.Conv2d(6, 16, kernel_size=3, stride=2, padding=1),
        normalisation(settings.norm, 16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * height * width, 32),
    )
    return finish(features, 32, settings, spec)


def moon_cnn(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return MOON's CIFAR-10 model (published code, ``SimpleCNN_header``).

    Two 5x5 convolutions (6 and 16 channels), each with ReLU and 2x2 max-pooling, then 120 and
    84 units with ReLU. It has no normalisation. The paper adds the projection head
    (``projection_dim = 256``).

    Raises
    ------
    SettingsError
        Images smaller than 16x16.
    """
    channels, height, width = spec.kind.shape
    height, width = _twice_convolved_and_pooled(height), _twice_convolved_and_pooled(width)
    if min(height, width) < 1:
        raise refuse_shape(
            settings, spec, "at least 16x16. For smaller images use model.name = 'mlp'"
        )
    features = nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=5),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return finish(features, 84, settings, spec)


def _twice_convolved_and_pooled(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2

"""``cnn1d``: a small convolutional network for time series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from common.config import ModelSettings
from common.models.layers import finish, normalisation
from common.models.split import SplitModel

if TYPE_CHECKING:
    from common.data import DataSpec

LATENT = 64


def cnn1d(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return three convolutions over time, their mean over time, and a linear ``z`` of 64.

    Kernels 7, 5 and 3 with stride 2 (32, 64 and 64 channels), each with normalisation and ReLU. The
    mean takes windows of any length, and does not ask at which moment something happened.
    """
    features = nn.Sequential(
        *_block(spec.kind.shape[0], 32, 7, settings),
        *_block(32, 64, 5, settings),
        *_block(64, 64, 3, settings),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, LATENT),
    )
    return finish(features, LATENT, settings, spec)


def _block(channels: int, out: int, kernel: int, settings: ModelSettings) -> list[nn.Module]:
    convolution = nn.Conv1d(channels, out, kernel, stride=2, padding=kernel // 2)
    return [convolution, normalisation(settings.norm, out, dimensions=1), nn.ReLU()]

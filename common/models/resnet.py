"""ResNets for small images (He et al., CVPR 2016), of torchvision's blocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from torch import nn

from common.config import ModelSettings
from common.models.layers import check_batch_norm, finish, normalisation, strided
from common.models.split import SplitModel

if TYPE_CHECKING:
    from common.data import DataSpec


def resnet18(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return ResNet-18 with the small-image stem; ``z`` is 512 before a projection head."""
    return _small_image_resnet("BasicBlock", [2, 2, 2, 2], settings, spec)


def resnet50(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return ResNet-50 with the small-image stem; ``z`` is 2048 before a projection head."""
    return _small_image_resnet("Bottleneck", [3, 4, 6, 3], settings, spec)


def _small_image_resnet(
    block: Literal["BasicBlock", "Bottleneck"],
    depths: list[int],
    settings: ModelSettings,
    spec: DataSpec,
) -> SplitModel:
    """Return torchvision's ResNet with a 3x3 stem of stride 1 and no max-pooling.

    MOON's published code uses this stem for CIFAR-100 (``resnetcifar.py``).

    Raises
    ------
    SettingsError
        With batch norm, images of at most 8x8.
    """
    # Late: torchvision takes a second to import, and most models don't need it.
    from torchvision.models import resnet

    channels, height, width = spec.kind.shape
    for _ in range(3):
        height, width = strided(height), strided(width)
    check_batch_norm(settings, spec, height, width)

    features = resnet.ResNet(
        getattr(resnet, block), depths, norm_layer=partial(normalisation, settings.norm)
    )
    features.conv1 = nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
    # As torchvision initialises the stem that this one replaces.
    nn.init.kaiming_normal_(features.conv1.weight, mode="fan_out", nonlinearity="relu")
    features.maxpool = nn.Identity()
    latent_dim = features.fc.in_features
    features.fc = nn.Identity()
    return finish(features, latent_dim, settings, spec)

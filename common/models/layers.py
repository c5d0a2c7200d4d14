"""What the models share: the two ends of a SplitModel, normalisation, and refusals."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal, cast

from torch import nn

from common.config import ModelSettings, SettingsError
from common.models.split import SplitModel

if TYPE_CHECKING:
    from common.data import DataSpec

GROUP_CHANNELS = 8


def finish(features: nn.Module, width: int, settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return the SplitModel of ``features``: encoder (with the projection head) and predictor.

    Parameters
    ----------
    features : nn.Module
        ``x`` to float ``[batch, width]``.
    width : int
    settings : ModelSettings
        With ``projection_dim`` above 0, the encoder ends in MOON's head (published code,
        ``ModelFedCon``): Linear(width, width), ReLU, Linear(width, projection_dim).
    spec : DataSpec

    Returns
    -------
    SplitModel
        Its predictor is the last ``predictor_layers`` linear layers with what lies between them;
        where it is one, it is a plain ``nn.Linear``, which FedGen's averaged-head teacher relies
        on. Weights and outputs are the same wherever the two meet.

    Raises
    ------
    SettingsError
        The model has fewer linear layers at its end.
    """
    parts: OrderedDict[str, nn.Module] = OrderedDict(features=features)
    latent_dim = width
    if settings.projection_dim:
        latent_dim = settings.projection_dim
        parts["projection"] = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, latent_dim)
        )
    outputs = spec.targets.outputs
    predictor: nn.Module = nn.Linear(latent_dim, outputs)
    encoder = nn.Sequential(parts)
    if settings.predictor_layers > 1:
        encoder, moved = _cut(encoder, settings)
        latent_dim = cast(nn.Linear, moved[0]).in_features
        predictor = nn.Sequential(*moved, predictor)
    return SplitModel(encoder, predictor, latent_dim, outputs)


def _cut(encoder: nn.Sequential, settings: ModelSettings) -> tuple[nn.Sequential, nn.Sequential]:
    """Return the encoder without its last linear layers, and those with what follows each."""
    layers: list[nn.Module] = []
    for part in encoder:
        layers += part if isinstance(part, nn.Sequential) else [part]
    linear = [index for index, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    wanted = settings.predictor_layers - 1
    if len(linear) < wanted:
        raise SettingsError(
            f"model.predictor-layers = {settings.predictor_layers}: model.name = "
            f"{settings.name!r} with model.projection-dim = {settings.projection_dim} ends in "
            f"{len(linear) + 1} linear layers. Set it to at most that, or give the model a "
            "projection head (model.projection-dim), which has two more"
        )
    start = linear[-wanted]
    return nn.Sequential(*layers[:start]), nn.Sequential(*layers[start:])


def normalisation(
    kind: Literal["batch", "group"], channels: int, dimensions: Literal[1, 2] = 2
) -> nn.Module:
    """Return BatchNorm, or GroupNorm with 8 channels a group (one group if that doesn't fit).

    ``dimensions`` are those of a map, beside its channels: 1 for time, 2 for images.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels) if dimensions == 2 else nn.BatchNorm1d(channels)
    groups = 1 if channels % GROUP_CHANNELS else channels // GROUP_CHANNELS
    return nn.GroupNorm(groups, channels)


def strided(size: int) -> int:
    """Return the size that a 3x3 convolution with stride 2 and padding 1 leaves."""
    return (size + 1) // 2


def refuse_shape(settings: ModelSettings, spec: DataSpec, needs: str) -> SettingsError:
    """Return the error for a model that can't take images of ``spec.kind.shape``."""
    channels, height, width = spec.kind.shape
    return SettingsError(
        f"model.name = {settings.name!r} with model.norm = {settings.norm!r} can't take the "
        f"{channels}x{height}x{width} images (channels x height x width) of {spec.name!r}: "
        f"it needs {needs}"
    )


def check_batch_norm(settings: ModelSettings, spec: DataSpec, height: int, width: int) -> None:
    """Refuse a BatchNorm over maps of a single pixel.

    It can't train on a batch of one, and the last batch of an epoch may be one.

    Parameters
    ----------
    settings : ModelSettings
    spec : DataSpec
    height, width : int
        Size of the smallest map that is normalised.

    Raises
    ------
    SettingsError
    """
    if settings.norm == "batch" and height * width == 1:
        raise refuse_shape(
            settings,
            spec,
            "larger images, or model.norm = 'group': they shrink to a single pixel, and there "
            "BatchNorm can't train on a batch of one example. model.name = 'mlp' takes any shape",
        )

"""The registry of models.

To add a model, write a file here with a function ``(settings, spec) -> SplitModel`` (see
``mlp.py``; ``layers.finish`` adds projection head and predictor), add a line to ``MODELS`` and its
name to ``ModelSettings.name``. Then every algorithm trains it and ``load_model`` rebuilds it. What
a model can't take (image size, norm), the function refuses with :class:`SettingsError`. Heavy
imports belong inside the function, since every train message starts a new process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import nn

from common.config import ModelSettings
from common.models.cnn import fedgen_cnn, moon_cnn
from common.models.mlp import mlp
from common.models.resnet import resnet18, resnet50
from common.models.split import SplitModel
from common.seeding import seeded_initialisation

if TYPE_CHECKING:
    from common.data import DataSpec


class Builder(Protocol):
    """Builds an untrained model; weights come from torch's global generator."""

    def __call__(self, settings: ModelSettings, spec: DataSpec, /) -> SplitModel:
        """Return a model for images of ``spec.shape`` and ``spec.num_classes`` classes."""


MODELS: dict[str, Builder] = {
    "mlp": mlp,
    "fedgen-cnn": fedgen_cnn,
    "moon-cnn": moon_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
}


def build_model(settings: ModelSettings, spec: DataSpec, seed: int) -> SplitModel:
    """Return a new model on the CPU, in training mode; the same seed gives the same weights.

    Parameters
    ----------
    settings : ModelSettings
    spec : DataSpec
        Shape (channels, height, width) and number of classes.
    seed : int

    Raises
    ------
    SettingsError
        The model can't take images of this shape; the message says what it needs.
    """
    with seeded_initialisation(seed, "model"):
        return MODELS[settings.name](settings, spec)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable values in ``model``."""
    return sum(value.numel() for value in model.parameters() if value.requires_grad)

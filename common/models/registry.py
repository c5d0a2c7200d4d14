"""The registry of models.

To add a model, write a file here with a function ``(settings, spec) -> SplitModel`` (see
``mlp.py``; ``layers.finish`` adds projection head and predictor), add a line to ``MODELS`` and its
name to ``ModelSettings.name``. Then every algorithm trains it and ``load_model`` rebuilds it. What
a model can't take (size, norm), the function refuses with :class:`SettingsError`. Heavy
imports belong inside the function, since every train message starts a new process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import nn

from common.config import ModelSettings, SettingsError
from common.models.bag import text_bag
from common.models.cnn import fedgen_cnn, moon_cnn
from common.models.cnn1d import cnn1d
from common.models.hf_encoder import check_machine, hf_encoder
from common.models.lstm import char_lstm, lstm
from common.models.mlp import mlp
from common.models.resnet import resnet18, resnet50
from common.models.split import SplitModel
from common.models.tab_transformer import tab_transformer
from common.models.text_transformer import text_transformer
from common.seeding import seeded_globally

if TYPE_CHECKING:
    from common.data import DataSpec


class Builder(Protocol):
    """Builds an untrained model; weights come from torch's global generator."""

    def __call__(self, settings: ModelSettings, spec: DataSpec, /) -> SplitModel:
        """Return a model for examples of ``spec.kind``, with ``spec.targets.outputs`` outputs."""


class Entry(NamedTuple):
    """A model, the kinds of data that it takes (``common.data.kinds.KINDS``), and what it needs.

    ``check`` refuses a machine that lacks what the model is built from.
    """

    build: Builder
    kinds: tuple[str, ...] = ("image",)
    check: Callable[[ModelSettings], None] = lambda settings: None


MODELS: dict[str, Entry] = {
    "mlp": Entry(mlp, kinds=("image", "table", "signal")),
    "fedgen-cnn": Entry(fedgen_cnn),
    "moon-cnn": Entry(moon_cnn),
    "cnn1d": Entry(cnn1d, kinds=("signal",)),
    "tab-transformer": Entry(tab_transformer, kinds=("table",)),
    "resnet18": Entry(resnet18),
    "resnet50": Entry(resnet50),
    "text-bag": Entry(text_bag, kinds=("tokens",)),
    "char-lstm": Entry(char_lstm, kinds=("tokens",)),
    "lstm": Entry(lstm, kinds=("tokens",)),
    "text-transformer": Entry(text_transformer, kinds=("tokens",)),
    "hf-encoder": Entry(hf_encoder, kinds=("tokens",), check=check_machine),
}


def build_model(settings: ModelSettings, spec: DataSpec, seed: int) -> SplitModel:
    """Return a new model on the CPU, in training mode; the same seed gives the same weights.

    Parameters
    ----------
    settings : ModelSettings
    spec : DataSpec
        What its examples are and what is to be predicted of them.
    seed : int

    Raises
    ------
    SettingsError
        The model can't take examples of this kind or shape; the message says what it needs.
    """
    build, kinds, _ = MODELS[settings.name]
    if spec.kind.name not in kinds:
        takers = sorted(name for name, entry in MODELS.items() if spec.kind.name in entry.kinds)
        raise SettingsError(
            f"model.name = {settings.name!r} takes data of kind {' or '.join(kinds)}, and those of "
            f"{spec.name!r} are of kind {spec.kind.name}: use {' or '.join(takers)}"
        )
    with seeded_globally(seed, "model"):
        return build(settings, spec)


def check_model(settings: ModelSettings) -> None:
    """Refuse a model that this machine can't build, whatever the data.

    Raises
    ------
    SettingsError
    """
    MODELS[settings.name].check(settings)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable values in ``model``."""
    return sum(value.numel() for value in model.parameters() if value.requires_grad)

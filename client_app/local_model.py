"""The model that this client trains: the run's, or one with an encoder of its own."""

from __future__ import annotations

import torch

from common.config import ModelSettings, Settings, SettingsError
from common.data import data_spec
from common.models import MODELS, SplitModel, build_model
from common.node import Node


def build_local_model(settings: Settings, node: Node) -> SplitModel:
    """Return this client's model with its initial weights, on the CPU.

    They depend on ``seed`` and the model's name only. So clients with the same model begin with
    the same encoder, as in FedGen's published code, where every user copies the server's model.

    Raises
    ------
    SettingsError
        See :func:`local_model_settings`.
    """
    chosen = local_model_settings(settings, node)
    return build_model(chosen, data_spec(settings.data), settings.seed)


def local_model_settings(settings: Settings, node: Node) -> ModelSettings:
    """Return ``[model]`` with the name that this node chose, if it chose one.

    Raises
    ------
    SettingsError
        The node chose a model that is unknown, can't take these images or has another predictor
        than the run's; or the run shares the encoder.
    """
    shared = settings.model
    if node.model_name in ("", shared.name):
        return shared
    chosen = f"this node's model-name is {node.model_name!r}"
    if node.model_name not in MODELS:
        raise SettingsError(f"{chosen}, which is unknown: allowed are {', '.join(sorted(MODELS))}")
    if shared.sharing != "predictor":
        what = "shares the whole model" if shared.sharing == "all" else "trains one model"
        raise SettingsError(
            f"{chosen}, but this run {what}, {shared.name!r}: leave model-name "
            "(MOONFLOWER_MODEL_NAME) empty here, or run with model.sharing='predictor'"
        )
    own = shared.model_copy(update={"name": node.model_name})
    found, wanted = _outline(own, settings), _outline(shared, settings)
    if _predictor_shapes(found) != _predictor_shapes(wanted):
        raise SettingsError(
            f"{chosen} with latent size {found.latent_dim}, but the shared predictor, of "
            f"{shared.name!r}, reads {wanted.latent_dim}: choose a model with that size, or give "
            "all of them one with model.projection-dim"
        )
    return own


def _outline(model: ModelSettings, settings: Settings) -> SplitModel:
    """Return a model that has shapes but no numbers."""
    with torch.device("meta"):
        return build_model(model, data_spec(settings.data), settings.seed)


def _predictor_shapes(model: SplitModel) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.predictor.state_dict().items()}

"""``SplitModel``: the one shape that every algorithm relies on."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from common.config import ModelSettings


class SplitModel(nn.Module):
    """An encoder and a predictor, theta = [theta_f; theta_p] (FedGen, section 3).

    MOON contrasts the same ``z`` that FedGen generates: a projection head is the last part
    of the encoder, as in MOON's published code.

    Attributes
    ----------
    encoder : nn.Module
        ``x`` (float ``[batch, channels, height, width]``) to ``z`` (float ``[batch, latent_dim]``).
    predictor : nn.Module
        ``z`` to logits (float ``[batch, num_classes]``).
    latent_dim, num_classes : int
    """

    def __init__(
        self, encoder: nn.Module, predictor: nn.Module, latent_dim: int, num_classes: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.latent_dim = latent_dim
        self.num_classes = num_classes

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of ``x``."""
        logits: Tensor = self.predictor(self.encoder(x))
        return logits

    def encoder_names(self) -> set[str]:
        """Return the state-dict names of the encoder, its buffers included."""
        return {f"encoder.{name}" for name in self.encoder.state_dict()}

    def buffer_names(self) -> set[str]:
        """Return the state-dict names that are statistics rather than parameters."""
        return set(self.state_dict()) - {name for name, _ in self.named_parameters()}


def unshared_names(model: SplitModel, settings: ModelSettings) -> set[str]:
    """Return the state-dict names of what every client trains for itself (``model.sharing``)."""
    unshared = {
        "all": set[str](),
        "predictor": model.encoder_names(),
        "nothing": set(model.state_dict()),
    }
    return unshared[settings.sharing]


def private_names(model: SplitModel, settings: ModelSettings) -> set[str]:
    """Return the state-dict names of what never leaves a client.

    What is not shared (:func:`unshared_names`), and BatchNorm's running statistics where they are
    local (``model.batch-norm-buffers``).
    """
    private = unshared_names(model, settings)
    if settings.batch_norm_buffers == "local":
        private |= model.buffer_names()
    return private


def frozen_copy(model: SplitModel, state: dict[str, Tensor]) -> SplitModel:
    """Return a copy of ``model`` with the weights ``state``, in eval mode, without gradients."""
    frozen = copy.deepcopy(model)
    frozen.load_state_dict(state)
    frozen.eval()
    return frozen.requires_grad_(requires_grad=False)

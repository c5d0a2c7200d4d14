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
        ``z`` to what the task makes of it, such as logits (float ``[batch, outputs]``).
    latent_dim, outputs : int
    """

    def __init__(
        self, encoder: nn.Module, predictor: nn.Module, latent_dim: int, outputs: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.latent_dim = latent_dim
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictor's output for ``x``."""
        output: Tensor = self.predictor(self.encoder(x))
        return output

    def buffer_names(self) -> set[str]:
        """Return the state-dict names that are statistics rather than parameters."""
        return set(self.state_dict()) - {name for name, _ in self.named_parameters()}


_PARTS: dict[str, tuple[str, ...]] = {
    "all": ("encoder.", "predictor."),
    "predictor": ("predictor.",),
    "nothing": (),
}
"""The beginnings of the names that are trained together, by ``model.sharing``."""


def shared_parameters(model: SplitModel, settings: ModelSettings) -> list[str]:
    """Return the names of the parameters that are trained together, in the model's order.

    The contract of ``model.sharing``: what travels, what a term of the global weights (FedProx)
    is about, and what is private to a client (:func:`private_names`) follow from it.
    """
    parts = _PARTS[settings.sharing]
    return [name for name, _ in model.named_parameters() if name.startswith(parts)]


def unshared_names(model: SplitModel, settings: ModelSettings) -> set[str]:
    """Return the state-dict names of what every client trains for itself (``model.sharing``).

    A buffer belongs to the parameters of its module.
    """
    parts = _PARTS[settings.sharing]
    return {name for name in model.state_dict() if not name.startswith(parts)}


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

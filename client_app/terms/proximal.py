"""FedProx's proximal term (Li et al., MLSys 2020, arXiv:1812.06127)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from client_app.terms.base import Instruction, Term
from common.models import SplitModel, shared_parameters
from common.tasks import Step


def squared_distance(parameters: Iterable[Tensor], global_parameters: Iterable[Tensor]) -> Tensor:
    """Return ``||w - w_global||^2``, a scalar, over all parameters together."""
    return torch.stack(
        [
            (w - w_global).square().sum()
            for w, w_global in zip(parameters, global_parameters, strict=True)
        ]
    ).sum()


class Proximal(Term):
    """``mu/2 * ||w - w_global||^2`` (Eq. 2), over the shared parameters; buffers are no part of it.

    An encoder that is not shared (``model.sharing``) has no global weights to be near to.
    """

    name = "fedprox"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Remember the global weights."""
        self._mu = instruction.settings.fedprox.mu
        self._names = shared_parameters(model, instruction.settings.model)
        self._global = [parameter.detach().clone() for parameter in self._shared(model)]

    def penalty(self, step: Step) -> Tensor:
        """Return ``mu/2 * ||w - w_global||^2``."""
        return self._mu / 2 * squared_distance(self._shared(step.model), self._global)

    def _shared(self, model: SplitModel) -> list[Tensor]:
        return [model.get_parameter(name) for name in self._names]

"""The local optimiser: PyTorch's own SGD and Adam in their functional form.

``torch.optim.SGD`` and ``Adam`` import PyTorch's compiler when they are made: 2.6 s of a core, and
every instruction starts a new process on a client, which needs 3.3 s to import PyTorch itself. The
functions below them do the same computation, bit for bit, without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from common.config import TrainSettings

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""As in the paper (Kingma and Ba, 2015) and as ``torch.optim.Adam``."""


class Optimizer(Protocol):
    """What the local loop needs of one; ``torch.optim``'s have it too."""

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def step(self) -> object:
        """Change the parameters by their gradients."""


def build_optimizer(model: nn.Module, settings: TrainSettings, learning_rate: float) -> Sgd | Adam:
    """Return the local optimiser, fresh in every round as in the papers."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if settings.optimizer == "adam":
        return Adam(parameters, learning_rate, settings.weight_decay)
    return Sgd(parameters, learning_rate, settings.momentum, settings.weight_decay)


class _Functional:
    """What both have in common.

    Parameters
    ----------
    parameters : Iterable[Tensor]
        Of floating point. In a step, those without a gradient stay as they are; which ones have a
        gradient must not change from step to step if anything is remembered between steps.
    learning_rate, weight_decay : float
        At least 0.
    """

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: float, weight_decay: float
    ) -> None:
        self._parameters = list(parameters)
        self._learning_rate, self._weight_decay = learning_rate, weight_decay
        self.param_groups = [{"params": self._parameters}]  # what torch's GradScaler unscales

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def _with_gradients(self) -> tuple[list[Tensor], list[Tensor]]:
        pairs = [(each, each.grad) for each in self._parameters if each.grad is not None]
        return [each for each, _ in pairs], [gradient for _, gradient in pairs]


class Sgd(_Functional):
    """``torch.optim.SGD(fused=True)``, with ``momentum`` from 0."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(parameters, learning_rate, weight_decay)
        self._momentum = momentum
        self._buffers: list[Tensor | None] = []

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients."""
        trained, gradients = self._with_gradients()
        if self._momentum and not self._buffers:
            self._buffers = [None] * len(trained)  # filled by the first step
        sgd(
            trained,
            gradients,
            self._buffers,
            fused=True,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=self._learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class Adam(_Functional):
    """``torch.optim.Adam(fused=True)`` with its usual betas (0.9, 0.999) and epsilon (1e-8)."""

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, learning_rate, weight_decay)
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []
        self._steps: list[Tensor] = []

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients."""
        trained, gradients = self._with_gradients()
        if not self._steps:
            self._means = [torch.zeros_like(each) for each in trained]
            self._squares = [torch.zeros_like(each) for each in trained]
            self._steps = [torch.zeros((), device=each.device) for each in trained]
        adam(
            trained,
            gradients,
            self._means,
            self._squares,
            [],
            self._steps,
            fused=True,
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=_EPSILON,
            maximize=False,
        )

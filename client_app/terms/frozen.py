"""What models that are frozen for a round make of a client's training examples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from client_app.terms.base import Instruction
from common.tasks import Step

_BATCH = 512


class FrozenPass:
    """The output of frozen models for each batch, without gradient.

    Where inputs are the same in every epoch, each example is seen once per round instead of once
    per epoch; with augmentation each batch is.

    Parameters
    ----------
    output : callable
        From ``x`` to a tensor whose dimension ``dim`` is that of the examples. The models in it
        are in eval mode, so that an example's output does not depend on its batch.
    instruction : Instruction
    dim : int
    """

    def __init__(
        self, output: Callable[[Tensor], Tensor], instruction: Instruction, dim: int = 0
    ) -> None:
        self._output, self._dim = output, dim
        self._cached: Tensor | None = None
        if instruction.settings.data.augmentation == "none":
            # In batches of one size whether the set is resident or not: how much memory is free
            # must not change a bit.
            parts = instruction.data.train.batches_in_order(_BATCH)
            with torch.no_grad():
                self._cached = torch.cat([output(x) for x, _ in parts], dim=dim)

    def of(self, step: Step) -> Tensor:
        """Return the output for the examples of a step."""
        if self._cached is None:
            with torch.no_grad():
                return self._output(step.x)
        return self._cached.index_select(self._dim, step.index)

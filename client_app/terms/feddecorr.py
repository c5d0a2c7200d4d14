"""FedDecorr's decorrelation of representations (Shi et al., ICLR 2023, arXiv:2210.00226)."""

from __future__ import annotations

import torch
from torch import Tensor

from client_app.terms.base import Instruction, Term
from common.models import SplitModel
from common.tasks import Step

_EPSILON = 1e-8
"""Added to a variance, so that a dimension that is the same in the whole batch stays zero."""


def squared_correlation(z: Tensor) -> Tensor:
    """Return ``||K||_F^2 / d^2``, K the correlations of the dimensions of z over the batch.

    From 1/d, where no two are correlated, to 1, where all are. Zero for a batch of one, which has
    no correlations.

    Parameters
    ----------
    z : Tensor
        Float ``[batch, d]``.
    """
    batch, dim = z.shape
    if batch == 1:
        return z.new_zeros(())
    centred = z - z.mean(dim=0)
    standardised = centred / (centred.square().sum(dim=0) / (batch - 1) + _EPSILON).sqrt()
    # A product of matrices would be in bfloat16 under autocast, and so would its square.
    with torch.autocast(z.device.type, enabled=False):
        correlation = standardised.T @ standardised / (batch - 1)
    return correlation.square().sum() / dim**2


class FedDecorr(Term):
    """``beta * ||K||_F^2 / d^2``: z is to use all of its dimensions, also where labels are few."""

    name = "feddecorr"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Read beta."""
        self._beta = instruction.settings.feddecorr.beta

    def penalty(self, step: Step) -> Tensor:
        """Return the weighted term of the batch."""
        return self._beta * squared_correlation(step.z)

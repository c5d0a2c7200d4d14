"""FedRS's restricted softmax (Li and Zhan, KDD 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from client_app.terms.base import Instruction, Term
from common.models import SplitModel
from common.tasks import Step


def restricted_logits(logits: Tensor, held: Tensor, alpha: float) -> Tensor:
    """Return the logits, those of classes that the client lacks times ``alpha``.

    Parameters
    ----------
    logits : Tensor
        Float ``[batch, classes]``.
    held : Tensor
        Bool ``[classes]``: which classes the client has examples of.
    alpha : float
        In [0, 1]; at 1 nothing is restricted.
    """
    return torch.where(held, logits, alpha * logits)


class FedRS(Term):
    """``CE(restricted logits, y) - CE(logits, y)``: with the base loss, the first is learned.

    A client pushes the weights of classes that it has never seen away from all of its examples;
    the restriction slows that down.
    """

    name = "fedrs"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """See which classes this client has."""
        self._alpha = instruction.settings.fedrs.alpha
        self._held = instruction.data.label_counts.to(instruction.node.device) > 0

    def penalty(self, step: Step) -> Tensor:
        """Return by how much the restricted loss is above the base loss."""
        restricted = restricted_logits(step.output, self._held, self._alpha)
        return F.cross_entropy(restricted, step.y) - step.loss

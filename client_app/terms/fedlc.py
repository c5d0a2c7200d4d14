"""FedLC's calibrated cross-entropy (Zhang et al., ICML 2022, arXiv:2209.00189)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from client_app.terms.base import Instruction, Term
from common.models import SplitModel
from common.tasks import Step


def calibrated_logits(logits: Tensor, counts: Tensor, tau: float) -> Tensor:
    """Return ``logits - tau * n_c^(-1/4)``: the fewer examples of a class, the larger its margin.

    A class without examples gets ``-inf``, the limit: it takes no part in the softmax.

    Parameters
    ----------
    logits : Tensor
        Float ``[batch, classes]``.
    counts : Tensor
        ``[classes]``: n_c, the client's training examples of each class.
    tau : float
        From 0. At 0 the logits of classes with examples are unchanged.
    """
    margin = tau * counts.to(logits.dtype).pow(-0.25)
    return (logits - margin).masked_fill(counts == 0, float("-inf"))


class FedLC(Term):
    """``CE(calibrated logits, y) - CE(logits, y)``.

    With the base loss, the calibrated cross-entropy is what is learned. No class of the batch is
    without examples, so that it is finite.
    """

    name = "fedlc"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Count the examples of each class."""
        self._tau = instruction.settings.fedlc.tau
        self._counts = instruction.data.label_counts.to(instruction.node.device)

    def penalty(self, step: Step) -> Tensor:
        """Return by how much the calibrated loss is above the base loss."""
        return F.cross_entropy(calibrated_logits(step.output, self._counts, self._tau), step.y) - (
            step.loss
        )

"""FedNTD's not-true distillation (Lee et al., NeurIPS 2022, arXiv:2106.03097)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from client_app.terms.base import Instruction, Term
from client_app.terms.frozen import FrozenPass
from common.models import SplitModel
from common.models.split import frozen_copy
from common.tasks import Step


def not_true_divergence(
    logits: Tensor, global_logits: Tensor, y: Tensor, temperature: float
) -> Tensor:
    """Return L_NTD, the mean over the batch.

    ``KL(q_global || q_local)`` with q the softmax of ``logits / temperature`` over the classes that
    are not the label: what the global model knows of them is not forgotten, and the label is
    learned from the data alone. Zero with two classes.

    Parameters
    ----------
    logits, global_logits : Tensor
        Float ``[batch, classes]``; the second carry no gradient.
    y : Tensor
        Int64 ``[batch]``.
    temperature : float
        tau, above 0. The published code multiplies by its square, which is part of beta here.
    """
    classes = torch.arange(logits.shape[1] - 1, device=logits.device)
    not_true = classes + (classes >= y.unsqueeze(1))
    local, target = (
        F.log_softmax(each.gather(1, not_true) / temperature, dim=1)
        for each in (logits, global_logits.detach())
    )
    return F.kl_div(local, target, reduction="batchmean", log_target=True)


class FedNTD(Term):
    """``beta * L_NTD`` with the global model of this round as the teacher, in eval mode."""

    name = "fedntd"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Freeze the global model."""
        self._settings = instruction.settings.fedntd
        teacher = frozen_copy(model, model.state_dict())
        self._teacher = FrozenPass(lambda x: teacher(x).float(), instruction)

    def penalty(self, step: Step) -> Tensor:
        """Return ``beta * L_NTD`` of the batch."""
        taught = self._teacher.of(step)
        divergence = not_true_divergence(step.output, taught, step.y, self._settings.temperature)
        return self._settings.beta * divergence

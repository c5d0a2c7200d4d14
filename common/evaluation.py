"""Counting what a model gets right, the same way on a client and on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from common.data import ExampleSet
    from common.models import SplitModel

BATCH_SIZE = 512
"""Fixed, so that a saved model gives the logged numbers again to the last bit."""


@dataclass(frozen=True)
class Counts:
    """What a model got right on a set of examples.

    Attributes
    ----------
    total, correct : int
        Examples, and those whose largest logit is that of their label.
    loss : float
        Mean cross-entropy in nats; 0 without examples, since a NaN could not be told from a
        diverged model.
    class_correct, class_total : tuple[int, ...]
        The same per label, of length ``num_classes``.
    """

    total: int
    correct: int
    loss: float
    class_correct: tuple[int, ...]
    class_total: tuple[int, ...]


@torch.no_grad()
def count_correct(model: SplitModel, examples: ExampleSet, batch_size: int = BATCH_SIZE) -> Counts:
    """Evaluate ``model`` in eval mode on all ``examples``.

    Parameters
    ----------
    model : SplitModel
        On the device of ``examples``; its mode is put back afterwards.
    examples : ExampleSet
        May be empty.
    batch_size : int
        Examples in one forward pass, at least 1.

    Returns
    -------
    Counts
    """
    device = next(model.parameters()).device
    class_total = torch.zeros(model.num_classes, dtype=torch.int64, device=device)
    class_correct = torch.zeros_like(class_total)
    # float64: a sum of many small float32 losses would depend on the number of batches.
    loss = torch.zeros((), dtype=torch.float64, device=device)
    was_training = model.training
    model.eval()
    try:
        for x, y in examples.batches_in_order(batch_size):
            logits = model(x)
            loss += F.cross_entropy(logits, y, reduction="sum")
            class_total.scatter_add_(0, y, torch.ones_like(y))
            class_correct.scatter_add_(0, y, (logits.argmax(dim=1) == y).long())
    finally:
        model.train(was_training)
    # Read once at the end: every read waits for the device.
    per_class, per_class_total = class_correct.tolist(), class_total.tolist()
    total = sum(per_class_total)
    return Counts(
        total=total,
        correct=sum(per_class),
        loss=loss.item() / total if total else 0.0,
        class_correct=tuple(per_class),
        class_total=tuple(per_class_total),
    )

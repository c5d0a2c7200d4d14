"""Classification: one of several labels for each example."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from common import records
from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.tasks import base
from common.tasks.base import Headline, Scores, Step, Sums, evaluating, number, numbers

CLASS_CORRECT = "class-correct"
CLASS_TOTAL = "class-total"


class Classification:
    """Cross-entropy to learn from, accuracy to be judged by.

    Sums: ``loss``, cross-entropies in nats; ``class-correct``, examples by label whose largest
    logit is that of their label; ``class-total``, examples by label. Whole numbers rather than
    accuracies: their sums over clients are exact.

    Parameters
    ----------
    num_classes : int
        From 2.
    """

    loss_name = "cross-entropy"
    headline = Headline("accuracy")
    answer = "probabilities"

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes

    @property
    def sums(self) -> Mapping[str, int | None]:
        """Return names and lengths."""
        lists = dict.fromkeys((CLASS_CORRECT, CLASS_TOTAL), self._num_classes)
        return {records.LOSS: None, **lists}

    def forward(self, model: SplitModel, batch: Batch) -> Step:
        """Return the mean cross-entropy of a batch; ``output`` are logits."""
        # .float() of float32 is the tensor itself: terms get float32 in every precision.
        z = model.encoder(batch.x).float()
        logits = model.predictor(z).float()
        loss = F.cross_entropy(logits, batch.y)
        return Step(batch.x, batch.y, batch.index, z, logits, loss, model)

    def answers(self, output: Tensor) -> Tensor:
        """Return the probability of each class, ``[batch, num_classes]``, in [0, 1]; 1 in all."""
        return output.softmax(dim=1)

    def measure(self, model: SplitModel, examples: ExampleSet) -> Sums:
        """Count what ``model`` gets right."""
        device = examples.y.device
        total = torch.zeros(self._num_classes, dtype=torch.int64, device=device)
        correct = torch.zeros_like(total)
        # float64: a sum of many small float32 losses would depend on the number of batches.
        loss = torch.zeros((), dtype=torch.float64, device=device)
        with evaluating(model):
            for x, y in examples.batches_in_order(base.BATCH_SIZE):
                logits = model(x)
                loss += F.cross_entropy(logits, y, reduction="sum")
                total.scatter_add_(0, y, torch.ones_like(y))
                correct.scatter_add_(0, y, (logits.argmax(dim=1) == y).long())
        return {
            # Read once at the end: every read waits for the device.
            records.NUM_EXAMPLES: len(examples),
            records.LOSS: loss.item(),
            CLASS_CORRECT: correct.tolist(),
            CLASS_TOTAL: total.tolist(),
        }

    def why_not(self, sums: Sums) -> str:
        """Return why the loss can't be one, or that counts contradict each other."""
        examples, loss = number(sums, records.NUM_EXAMPLES), number(sums, records.LOSS)
        correct, total = numbers(sums, CLASS_CORRECT), numbers(sums, CLASS_TOTAL)
        if loss < 0:
            return f"its losses add up to {loss:g}, a cross-entropy is at least 0"
        if any(n != int(n) for n in (*correct, *total)) or any(
            not 0 <= right <= n for right, n in zip(correct, total, strict=True)
        ):
            return f"it counts {correct} right answers of {total} examples per label"
        if sum(total) != examples:
            return f"its counts per label add up to {sum(total)}, but it says {examples}"
        return ""

    def score(self, sums: Sums) -> Scores:
        """Return ``accuracy`` in [0, 1], mean ``loss``, ``examples`` and ``per-class``.

        The last is the accuracy per label, None for a label without examples.
        """
        examples = number(sums, records.NUM_EXAMPLES)
        correct, total = numbers(sums, CLASS_CORRECT), numbers(sums, CLASS_TOTAL)
        return Scores(
            {
                "accuracy": sum(correct) / examples if examples else None,
                "loss": number(sums, records.LOSS) / examples if examples else None,
                "examples": examples,
                "per-class": [
                    right / n if n else None for right, n in zip(correct, total, strict=True)
                ],
            },
            {} if examples else dict.fromkeys(("accuracy", "loss"), "there are no examples"),
        )

    def guessing(self, score: float, scores: Mapping[str, object]) -> str:
        """Compare accuracy with that of uniform guessing."""
        if score > level_of_guessing(self._num_classes):
            return ""
        return f"{score:.3f}, hardly more than guessing among {self._num_classes} classes"


def level_of_guessing(num_classes: int) -> float:
    """Return the accuracy up to which a model may be guessing, for at least 2 classes.

    One and a half times what uniform guessing reaches, but at most 0.6: of two classes, 0.75
    can be honest work.
    """
    return min(1.5 / num_classes, 0.6)

"""Multi-label: of several labels, whether an example has each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common import records
from common.config import SettingsError
from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.tasks import base, labels, threshold_curves
from common.tasks.base import (
    Headline,
    Scores,
    Step,
    Sums,
    counts,
    evaluating,
    number,
    numbers,
    with_headline,
)
from common.tasks.tally import BRIER, NEGATIVE, POSITIVE

CORRECT, TOTAL, PREDICTED = "label-correct", "label-total", "label-predicted"
RIGHT = "right-answers"

MOST_LABELS = 128
"""Labels up to which histograms of scores are measured; see ``classification.MOST_CLASSES``."""

TOO_MANY = f"measured up to {MOST_LABELS} labels"


class MultiLabel:
    """Binary cross-entropy to learn from, the mean AUROC (or another score) to be judged by.

    Sums: ``loss``, over examples the mean binary cross-entropy of their labels in nats; ``brier``,
    the mean (p - y)^2 of their labels; ``right-answers``, of all labels of all examples; by label
    ``label-total`` (examples that have it), ``label-predicted`` (whose probability is above 1/2)
    and ``label-correct`` (both). Up to ``MOST_LABELS`` labels also the histograms
    ``score-positive`` and ``score-negative``, examples with and without a label by bin of its
    log-odds, which are its logit (:mod:`common.tasks.threshold_curves`).

    Parameters
    ----------
    num_labels : int
        From 2.
    headline : str
        One of ``common.config.task.SCORES["multi-label"]``.
    specificity : float
        In (0, 1), at which the sensitivity is given.
    weights : sequence of float, optional
        Of the examples that have a label in the loss that is minimised, by label.

    Raises
    ------
    SettingsError
        The headline is not measured for so many labels.
    """

    loss_name = "binary-cross-entropy"
    answer = "probabilities"
    by_client: tuple[str, ...] = ("auroc", "macro-f1")

    def __init__(
        self,
        num_labels: int,
        headline: str = "auroc",
        specificity: float = 0.9,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.headline = Headline.of(headline)
        self._num_labels = num_labels
        self._specificity = specificity
        self._weights = weights
        self._bins = threshold_curves.bins_for(num_labels) if num_labels <= MOST_LABELS else 0
        if headline in ("auroc", "auprc", "sensitivity") and not self._bins:
            raise SettingsError(
                f"task.headline {headline!r} is {TOO_MANY}, and these data have {num_labels}: use "
                "another, such as 'macro-f1'"
            )

    @property
    def sums(self) -> Mapping[str, int | None]:
        """Return names and lengths."""
        by_label = dict.fromkeys((CORRECT, TOTAL, PREDICTED), self._num_labels)
        return {records.LOSS: None, BRIER: None, RIGHT: None, **by_label}

    @property
    def counts(self) -> Mapping[str, int]:
        """Return names and lengths; none where there are too many labels."""
        histogram = self._num_labels * self._bins
        return dict.fromkeys((POSITIVE, NEGATIVE), histogram) if histogram else {}

    def forward(self, model: SplitModel, batch: Batch) -> Step:
        """Return the mean binary cross-entropy over examples and labels; ``output`` are logits."""
        z = model.encoder(batch.x).float()
        logits = model.predictor(z).float()
        weights = None if self._weights is None else logits.new_tensor(self._weights)
        loss = F.binary_cross_entropy_with_logits(logits, batch.y, pos_weight=weights)
        return Step(batch.x, batch.y, batch.index, z, logits, loss, model)

    def answers(self, output: Tensor) -> Tensor:
        """Return the probability of each label, ``[batch, num_labels]``, each in [0, 1]."""
        return output.sigmoid()

    def measure(self, model: SplitModel, examples: ExampleSet) -> Sums:
        """Add up losses, and count answers by label and score."""
        device, count = examples.y.device, self._num_labels
        losses = torch.zeros(2, dtype=torch.float64, device=device)
        by_label = torch.zeros(3, count, dtype=torch.int64, device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        places = torch.arange(count, device=device) * self._bins
        histograms = torch.zeros(2, count * self._bins, dtype=torch.int64, device=device)
        with evaluating(model):
            for x, y in examples.batches_in_order(base.BATCH_SIZE):
                logits = model(x)
                loss = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
                squares = (logits.sigmoid() - y).square()
                each = torch.stack([loss, squares])
                losses += each.mean(dim=2).double().sum(dim=1)
                has, said = y > 0, logits > 0
                by_label += torch.stack([has & said, has, said]).long().sum(dim=1)
                right += (has == said).sum()
                if self._bins:
                    bins = (threshold_curves.bin_of(logits, self._bins) + places).flatten()
                    positive = has.long().flatten()
                    histograms[0].scatter_add_(0, bins, positive)
                    histograms[1].scatter_add_(0, bins, 1 - positive)
        whole = torch.cat([right.view(1), by_label.flatten(), histograms.flatten()]).cpu()
        lists = whole[1 : 1 + 3 * count].view(3, count).tolist()
        both = whole[1 + 3 * count :].view(2, -1).numpy()
        return {
            records.NUM_EXAMPLES: len(examples),
            **dict(zip((records.LOSS, BRIER), losses.tolist(), strict=True)),
            RIGHT: int(whole[0]),
            **dict(zip((CORRECT, TOTAL, PREDICTED), lists, strict=True)),
            **dict(zip(self.counts, both, strict=False)),
        }

    def why_not(self, sums: Sums) -> str:
        """Return why a sum can't be one, or which of them contradict each other."""
        n, loss, brier = (
            number(sums, each) for each in (records.NUM_EXAMPLES, records.LOSS, BRIER)
        )
        if loss < 0:
            return f"its losses add up to {loss:g}, a cross-entropy is at least 0"
        if not 0 <= brier <= n * (1 + 1e-4):
            return f"its sum 'brier' is {brier:g}, allowed is 0 to {n:g}"
        return self._contradiction(n, sums)

    def _contradiction(self, n: float, sums: Sums) -> str:
        correct, total, predicted = (numbers(sums, each) for each in (CORRECT, TOTAL, PREDICTED))
        if any(each != int(each) for each in (*correct, *total, *predicted)) or any(
            not max(0, has + said - n) <= both <= min(has, said) <= max(has, said) <= n
            for both, has, said in zip(correct, total, predicted, strict=True)
        ):
            return (
                f"of {n:g} examples it counts {correct} right of {total} that have a label and "
                f"{predicted} that were said to"
            )
        right = sum(
            n - has - said + 2 * both
            for both, has, said in zip(correct, total, predicted, strict=True)
        )
        if number(sums, RIGHT) != right:
            return f"it counts {number(sums, RIGHT):g} right answers, by label they are {right:g}"
        if not self.counts:
            return ""
        positive, negative = self._histograms(sums)
        has = np.asarray(total)
        if (positive.sum(axis=1) != has).any() or (negative.sum(axis=1) != n - has).any():
            return "its histograms of scores contradict its counts per label"
        return ""

    def score(self, sums: Sums) -> Scores:
        """Return the scores that docs/measures.md describes; means are over defined labels."""
        n, loss = number(sums, records.NUM_EXAMPLES), number(sums, records.LOSS)
        by_label = (numbers(sums, each) for each in (CORRECT, TOTAL, PREDICTED))
        both, has, said = (np.asarray(each, dtype=np.float64) for each in by_label)
        recall, precision = labels.recall(both, has), labels.precision(both, said)
        f1 = labels.f1(both, has, said)
        finite = bool(n) and math.isfinite(loss)
        values: dict[str, object] = {
            "macro-f1": labels.mean_of_defined(f1),
            "accuracy": number(sums, RIGHT) / n / self._num_labels if n else None,
            records.LOSS: loss / n if n else None,
            BRIER: number(sums, BRIER) / n if finite else None,
            "examples": n,
            "f1": labels.as_list(f1),
            "recall": labels.as_list(recall),
            "precision": labels.as_list(precision),
        }
        undefined = {
            "recall": labels.of_labels("there are no examples of label", recall),
            "precision": labels.of_labels("there are no predictions of label", precision),
            "f1": labels.of_labels("there are neither examples nor predictions of label", f1),
            BRIER: "" if finite else "the model's outputs are not finite",
        }
        ranked, reasons = self._of_rankings(sums)
        values |= ranked
        undefined |= reasons
        if not n:
            undefined = {name: "there are no examples" for name in values if name != "examples"}
        elif values["macro-f1"] is None:
            undefined["macro-f1"] = "no example has a label, and none was said to have one"
        return with_headline(self.headline, values, undefined)

    def _of_rankings(self, sums: Sums) -> tuple[dict[str, object], dict[str, str]]:
        means, lists = ("auroc", "auprc", "sensitivity"), ("auroc-per-label", "auprc-per-label")
        n, total = number(sums, records.NUM_EXAMPLES), numbers(sums, TOTAL)
        reason = ""
        if not self.counts:
            reason = TOO_MANY
        elif not math.isfinite(number(sums, records.LOSS)):
            reason = "the model's outputs are not finite"
        elif all(has in (0, n) for has in total):
            reason = "for no label there are examples with it and without it"
        if reason:
            names = (*means, *lists)
            return dict.fromkeys(names), dict.fromkeys(names, reason)
        positive, negative = self._histograms(sums)
        used = np.flatnonzero((positive + negative).any(axis=0))
        positive, negative = positive[:, used], negative[:, used]
        found = {
            "auroc": threshold_curves.auroc(positive, negative),
            "auprc": threshold_curves.auprc(positive, negative),
            "sensitivity": threshold_curves.sensitivity(positive, negative, self._specificity),
        }
        values: dict[str, object] = {n: labels.mean_of_defined(v) for n, v in found.items()}
        undefined = {}
        for name in lists:
            each = found[name.removesuffix("-per-label")]
            values[name] = labels.as_list(each, digits=6)
            undefined[name] = labels.of_labels("all or no examples have label", each)
        return values, undefined

    def _histograms(self, sums: Sums) -> tuple[base.Counts, base.Counts]:
        positive, negative = (
            counts(sums, name).reshape(self._num_labels, self._bins)
            for name in (POSITIVE, NEGATIVE)
        )
        return positive, negative

    def guessing(self, score: float, scores: Mapping[str, object]) -> str:
        """Compare the mean AUROC with that of guessing."""
        auroc = score if self.headline.name == "auroc" else scores.get("auroc")
        if not isinstance(auroc, float) or auroc > threshold_curves.AUROC_OF_GUESSING:
            return ""
        return f"{score:.3f} (AUROC {auroc:.3f}), hardly more than guessing"

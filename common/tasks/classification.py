"""Classification: one of several labels for each example."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from common import records
from common.config import SettingsError
from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.tasks import base, calibration, labels, threshold_curves
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
from common.tasks.tally import (
    BRIER,
    CONFIDENCE,
    CONFIDENT,
    CONFIDENT_CORRECT,
    CONFUSION,
    CORRECT,
    NEGATIVE,
    POSITIVE,
    PREDICTED,
    TOTAL,
    Tally,
)

MOST_CLASSES = 128
"""Classes up to which a confusion matrix and the histograms of scores are measured: an evaluation
reply has a megabyte at most (``server_app.exchange.postbox.Room``)."""

MOST_SHOWN = 30
"""Classes up to which the whole confusion matrix stands in ``metrics.jsonl``: a line is written
every round, and every checkpoint holds all lines. Of more, the largest confusions do."""

TOO_MANY = f"measured up to {MOST_CLASSES} classes"
NO_EXAMPLES = "there are no examples"
NOT_FINITE = "the model's outputs are not finite"


class Classification:
    """Cross-entropy to learn from, accuracy (or another score) to be judged by.

    Sums: ``loss``, cross-entropies in nats; ``brier``, squared distances of the probabilities to
    the label's one-hot vector; by label ``class-total`` (examples), ``class-predicted`` (examples
    whose largest logit it is) and ``class-correct`` (both); by bin of confidence
    ``calibration-examples``, ``-correct`` and ``-confidence`` (:mod:`common.tasks.calibration`).
    Up to ``MOST_CLASSES`` classes also ``confusion``, examples by label and prediction, and the
    histograms ``score-positive`` and ``score-negative``, examples of a class and of all others by
    bin of the class's log-odds (:mod:`common.tasks.threshold_curves`); of two classes only those
    of class 1.

    Parameters
    ----------
    num_classes : int
        From 2.
    headline : str
        One of ``common.config.task.SCORES["classification"]``.
    specificity : float
        In (0, 1), at which the sensitivity is given.
    weights : sequence of float, optional
        Of each label's examples in the loss that is minimised.

    Raises
    ------
    SettingsError
        The headline is not measured for so many classes.
    """

    loss_name = "cross-entropy"
    answer = "probabilities"
    by_client: tuple[str, ...] = ("accuracy", "auroc")

    def __init__(
        self,
        num_classes: int,
        headline: str = "accuracy",
        specificity: float = 0.9,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.headline = Headline.of(headline)
        self._num_classes = num_classes
        self._specificity = specificity
        self._weights = weights
        self._rankings = 1 if num_classes == 2 else num_classes
        self._bins = threshold_curves.bins_for(self._rankings)
        if headline in ("auroc", "auprc", "sensitivity") and num_classes > MOST_CLASSES:
            raise SettingsError(
                f"task.headline {headline!r} is {TOO_MANY}, and these data have {num_classes}: "
                "use another, such as 'balanced-accuracy' or 'macro-f1'"
            )

    @property
    def sums(self) -> Mapping[str, int | None]:
        """Return names and lengths."""
        by_label = dict.fromkeys((CORRECT, TOTAL, PREDICTED), self._num_classes)
        by_bin = dict.fromkeys((CONFIDENT_CORRECT, CONFIDENT, CONFIDENCE), calibration.BINS)
        return {records.LOSS: None, BRIER: None, **by_label, **by_bin}

    @property
    def counts(self) -> Mapping[str, int]:
        """Return names and lengths; none where there are too many classes."""
        if self._num_classes > MOST_CLASSES:
            return {}
        histogram = self._rankings * self._bins
        return {CONFUSION: self._num_classes**2, POSITIVE: histogram, NEGATIVE: histogram}

    def forward(self, model: SplitModel, batch: Batch) -> Step:
        """Return the mean cross-entropy of a batch; ``output`` are logits.

        With class weights it is the weighted mean, ``sum w_y loss / sum w_y``.
        """
        # .float() of float32 is the tensor itself: terms get float32 in every precision.
        z = model.encoder(batch.x).float()
        logits = model.predictor(z).float()
        weights = None if self._weights is None else logits.new_tensor(self._weights)
        loss = F.cross_entropy(logits, batch.y, weight=weights)
        return Step(batch.x, batch.y, batch.index, z, logits, loss, model)

    def answers(self, output: Tensor) -> Tensor:
        """Return the probability of each class, ``[batch, num_classes]``, in [0, 1]; 1 in all."""
        return output.softmax(dim=1)

    def measure(self, model: SplitModel, examples: ExampleSet) -> Sums:
        """Add up losses, and count answers by label, confidence and score."""
        bins = self._bins if self.counts else 0
        tally = Tally(self._num_classes, bins, examples.y.device)
        with evaluating(model):
            for x, y in examples.batches_in_order(base.BATCH_SIZE):
                tally.add(model(x), y)
        return {records.NUM_EXAMPLES: len(examples), **tally.read()}

    def why_not(self, sums: Sums) -> str:
        """Return why a sum can't be one, or which of them contradict each other."""
        n, loss = number(sums, records.NUM_EXAMPLES), number(sums, records.LOSS)
        if loss < 0:
            return f"its losses add up to {loss:g}, a cross-entropy is at least 0"
        if not 0 <= number(sums, BRIER) <= 2 * n * (1 + calibration.ROUNDING):
            return f"its sum 'brier' is {number(sums, BRIER):g}, allowed is 0 to twice {n:g}"
        return (
            self._contradiction(sums)
            or calibration.why_not(*(numbers(sums, each) for each in _CALIBRATION))
            or (self._wrong_counts(sums) if self.counts else "")
        )

    def _contradiction(self, sums: Sums) -> str:
        n = number(sums, records.NUM_EXAMPLES)
        correct, total, predicted = (numbers(sums, each) for each in (CORRECT, TOTAL, PREDICTED))
        if any(n != int(n) or n < 0 for n in (*correct, *total, *predicted)) or any(
            right > min(n, said) for right, n, said in zip(correct, total, predicted, strict=True)
        ):
            return (
                f"it counts {correct} right answers of {total} examples and {predicted} "
                "predictions per label"
            )
        for name, parts in (("examples", total), ("predictions", predicted)):
            if sum(parts) != n:
                return f"its {name} per label add up to {sum(parts)}, but it says {n}"
        confident, right = numbers(sums, CONFIDENT), numbers(sums, CONFIDENT_CORRECT)
        if sum(confident) != n or sum(right) != sum(correct):
            return (
                f"its calibration bins hold {sum(right)} right answers of {sum(confident)}, but "
                f"it counts {sum(correct)} of {n}"
            )
        return ""

    def _wrong_counts(self, sums: Sums) -> str:
        n = number(sums, records.NUM_EXAMPLES)
        correct, total, predicted = (numbers(sums, each) for each in (CORRECT, TOTAL, PREDICTED))
        matrix = counts(sums, CONFUSION).reshape(self._num_classes, self._num_classes)
        found = (matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0))
        if any((a != b).any() for a, b in zip(found, (correct, total, predicted), strict=True)):
            return "its confusion matrix contradicts its counts per label"
        positive, negative = self._histograms(sums)
        ranked = np.asarray(total[1:] if self._rankings == 1 else total)
        if (positive.sum(axis=1) != ranked).any() or (negative.sum(axis=1) != n - ranked).any():
            return "its histograms of scores contradict its counts per label"
        return ""

    def score(self, sums: Sums) -> Scores:
        """Return the scores that docs/measures.md describes.

        ``recall`` of a label without examples and ``precision`` of one that was never predicted
        are None; means over labels are over those where the score is defined.
        """
        n, loss = number(sums, records.NUM_EXAMPLES), number(sums, records.LOSS)
        values, undefined = self._of_labels(sums)
        if n and math.isfinite(loss):
            values |= self._of_probabilities(sums)
        else:
            names = (BRIER, "calibration-error", "calibration")
            values |= dict.fromkeys(names)
            undefined |= dict.fromkeys(names, NOT_FINITE if n else NO_EXAMPLES)
        ranked, reasons = self._of_rankings(sums)
        values |= {records.LOSS: loss / n if n else None, **ranked, **self._confusion(sums)}
        undefined |= reasons | ({} if n else {records.LOSS: NO_EXAMPLES})
        if values.get("confusion-matrix", ()) is None:
            undefined["confusion-matrix"] = (
                TOO_MANY
                if not self.counts
                else f"shown up to {MOST_SHOWN} classes: see 'confusions'"
            )
        return with_headline(self.headline, values, undefined)

    def _of_labels(self, sums: Sums) -> tuple[dict[str, object], dict[str, str]]:
        n = number(sums, records.NUM_EXAMPLES)
        right, total, predicted = (
            np.asarray(numbers(sums, each), dtype=np.float64)
            for each in (CORRECT, TOTAL, PREDICTED)
        )
        recall, precision = labels.recall(right, total), labels.precision(right, predicted)
        values: dict[str, object] = {
            "accuracy": sum(numbers(sums, CORRECT)) / n if n else None,
            "balanced-accuracy": labels.mean_of_defined(recall),
            "macro-f1": labels.mean_of_defined(labels.f1(right, total, predicted)),
            "examples": n,
            "recall": labels.as_list(recall),
            "precision": labels.as_list(precision),
        }
        if not n:
            return values, dict.fromkeys((n for n in values if n != "examples"), NO_EXAMPLES)
        return values, {
            "recall": labels.of_labels("there are no examples of label", recall),
            "precision": labels.of_labels("there are no predictions of label", precision),
        }

    def _of_probabilities(self, sums: Sums) -> dict[str, object]:
        # As scikit-learn: of two classes half of it, (p - y)^2 of class 1.
        scale = 2 if self._num_classes == 2 else 1
        bins = [numbers(sums, each) for each in _CALIBRATION]
        return {
            BRIER: number(sums, BRIER) / number(sums, records.NUM_EXAMPLES) / scale,
            "calibration-error": calibration.calibration_error(*bins),
            "calibration": calibration.bins_with_examples(*bins),
        }

    def _of_rankings(self, sums: Sums) -> tuple[dict[str, object], dict[str, str]]:
        means = ("auroc", "auprc", "sensitivity")
        lists = () if self._rankings == 1 else ("auroc-per-class", "auprc-per-class")
        reason = self._why_no_rankings(sums)
        if reason:
            names = (*means, *lists)
            return dict.fromkeys(names), dict.fromkeys(names, reason)
        positive, negative = self._histograms(sums)
        # Most bins are empty, and those change nothing.
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
            each = found[name.removesuffix("-per-class")]
            values[name] = labels.as_list(each, digits=6)
            undefined[name] = labels.of_labels("there are no examples of label", each)
        return values, undefined

    def _why_no_rankings(self, sums: Sums) -> str:
        if not self.counts:
            return TOO_MANY
        if not number(sums, records.NUM_EXAMPLES):
            return NO_EXAMPLES
        if not math.isfinite(number(sums, records.LOSS)):
            return NOT_FINITE
        present = [label for label, n in enumerate(numbers(sums, TOTAL)) if n]
        return f"all examples are of label {present[0]}" if len(present) == 1 else ""

    def _confusion(self, sums: Sums) -> dict[str, object]:
        if not self.counts:
            return {"confusion-matrix": None}
        matrix = counts(sums, CONFUSION).reshape(self._num_classes, self._num_classes)
        if self._num_classes <= MOST_SHOWN:
            return {"confusion-matrix": matrix.tolist()}
        wrong = matrix - np.diag(matrix.diagonal())
        # Of equal ones the first, whatever NumPy's version.
        largest = np.argsort(-wrong, axis=None, kind="stable")[:MOST_SHOWN]
        rows, columns = np.unravel_index(largest, wrong.shape)
        confusions = [
            {"label": int(row), "predicted": int(column), "examples": int(wrong[row, column])}
            for row, column in zip(rows, columns, strict=True)
            if wrong[row, column]
        ]
        return {"confusion-matrix": None, "confusions": confusions}

    def _histograms(self, sums: Sums) -> tuple[base.Counts, base.Counts]:
        positive, negative = (
            counts(sums, name).reshape(self._rankings, self._bins) for name in (POSITIVE, NEGATIVE)
        )
        return positive, negative

    def guessing(self, score: float, scores: Mapping[str, object]) -> str:
        """Compare with uniform guessing: the headline itself, or else the accuracy."""
        accuracy, level = scores.get("accuracy"), level_of_guessing(self._num_classes)
        if self.headline.name in ("accuracy", "balanced-accuracy"):
            found, value = score <= level, f"{score:.3f}"
        elif self.headline.name == "auroc":
            found, value = score <= threshold_curves.AUROC_OF_GUESSING, f"{score:.3f}"
        else:
            found = isinstance(accuracy, float) and accuracy <= level
            value = f"{score:.3f} (accuracy {accuracy:.3f})" if found else ""
        return f"{value}, hardly more than guessing among {self._num_classes} classes" * found


_CALIBRATION = (CONFIDENCE, CONFIDENT_CORRECT, CONFIDENT)


def level_of_guessing(num_classes: int) -> float:
    """Return the accuracy up to which a model may be guessing, for at least 2 classes.

    One and a half times what uniform guessing reaches, but at most 0.6: of two classes, 0.75
    can be honest work.
    """
    return min(1.5 / num_classes, 0.6)

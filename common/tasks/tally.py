"""Counting a classifier's answers, batch by batch, on the device; read once at the end."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from common import records
from common.tasks import calibration, threshold_curves
from common.tasks.base import Sum

CORRECT, TOTAL, PREDICTED = "class-correct", "class-total", "class-predicted"
CONFIDENCE, CONFIDENT_CORRECT, CONFIDENT = (
    "calibration-confidence",
    "calibration-correct",
    "calibration-examples",
)
BRIER = "brier"
CONFUSION, POSITIVE, NEGATIVE = "confusion", "score-positive", "score-negative"


class Tally:
    """Sums over the examples of :meth:`add`; see ``Classification`` for what they are.

    Parameters
    ----------
    num_classes : int
    bins : int
        Of each histogram of scores; 0: no histograms and no confusion matrix.
    device : torch.device
    """

    def __init__(self, num_classes: int, bins: int, device: torch.device) -> None:
        self._classes, self._bins = num_classes, bins
        self._rankings = 1 if num_classes == 2 else num_classes
        # float64: a sum of many small float32 losses would depend on the number of batches.
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._brier = torch.zeros((), dtype=torch.float64, device=device)
        self._confidence = torch.zeros(calibration.BINS, dtype=torch.float64, device=device)

        def whole(length: int) -> Tensor:
            return torch.zeros(length, dtype=torch.int64, device=device)

        self._by_label = {name: whole(num_classes) for name in (CORRECT, TOTAL, PREDICTED)}
        self._by_bin = {name: whole(calibration.BINS) for name in (CONFIDENT_CORRECT, CONFIDENT)}
        self._confusion = whole(num_classes**2 if bins else 0)
        self._positive, self._scores = (whole(self._rankings * bins) for _ in range(2))
        self._first_bins = torch.arange(self._rankings, device=device) * bins

    def add(self, logits: Tensor, y: Tensor) -> None:
        """Count a batch: float ``[n, num_classes]``, int64 ``[n]``."""
        log_p = F.log_softmax(logits, dim=1)
        p = log_p.exp()
        predicted = logits.argmax(dim=1)
        ones = torch.ones_like(y)
        right = (predicted == y).long()
        p_label = p.gather(1, y.unsqueeze(1)).squeeze(1)
        # The two steps of F.cross_entropy.
        self._loss += F.nll_loss(log_p, y, reduction="sum")
        # |p - onehot|^2
        self._brier += (p.square().sum(dim=1) - 2 * p_label + 1).double().clamp(min=0).sum()
        self._by_label[TOTAL].scatter_add_(0, y, ones)
        self._by_label[PREDICTED].scatter_add_(0, predicted, ones)
        self._by_label[CORRECT].scatter_add_(0, y, right)
        confidence = p.gather(1, predicted.unsqueeze(1)).squeeze(1)
        scaled = (confidence * calibration.BINS).nan_to_num()
        bin_of_confidence = scaled.clamp(0, calibration.BINS - 1).long()
        self._by_bin[CONFIDENT].scatter_add_(0, bin_of_confidence, ones)
        self._by_bin[CONFIDENT_CORRECT].scatter_add_(0, bin_of_confidence, right)
        self._confidence.scatter_add_(0, bin_of_confidence, confidence.double())
        if self._bins:
            self._confusion.scatter_add_(0, y * self._classes + predicted, ones)
            self._add_scores(log_p, logits, y, predicted)

    def _add_scores(self, log_p: Tensor, logits: Tensor, y: Tensor, predicted: Tensor) -> None:
        if self._rankings == 1:
            log_odds = (logits[:, 1] - logits[:, 0]).unsqueeze(1)
        else:
            log_odds = threshold_curves.one_versus_rest(log_p, predicted)
        places = threshold_curves.bin_of(log_odds, self._bins) + self._first_bins
        every = places.flatten()
        self._scores.scatter_add_(0, every, torch.ones_like(every))
        if self._rankings == 1:
            self._positive.scatter_add_(0, every, y)
        else:
            own = places.gather(1, y.unsqueeze(1)).squeeze(1)
            self._positive.scatter_add_(0, own, torch.ones_like(y))

    def read(self) -> dict[str, Sum]:
        """Return the sums. Every read waits for the device, so there are two."""
        floats = torch.cat([self._loss.view(1), self._brier.view(1), self._confidence]).tolist()
        lists = {**self._by_label, **self._by_bin}
        arrays = {
            CONFUSION: self._confusion,
            POSITIVE: self._positive,
            NEGATIVE: self._scores - self._positive,
        }
        parts = {**lists, **(arrays if self._bins else {})}
        together = torch.cat(list(parts.values())).cpu()
        whole = dict(
            zip(parts, together.split([len(part) for part in parts.values()]), strict=True)
        )
        return {
            records.LOSS: floats[0],
            BRIER: floats[1],
            **{name: whole[name].tolist() for name in lists},
            CONFIDENCE: floats[2:],
            **{name: whole[name].numpy() for name in parts if name in arrays},
        }

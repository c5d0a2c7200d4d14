"""Regression: a number for each example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from common import records
from common.data import Batch, ExampleSet
from common.models import SplitModel
from common.tasks import base
from common.tasks.base import Headline, Scores, Step, Sums, evaluating, number, with_headline

ABSOLUTE, TARGETS, SQUARES = "absolute-error", "target", "squared-target"
ROUNDING = 1e-9
"""By which part of the squares sums of float64 may miss what they must add up to."""


class Regression:
    """Squared error to learn from, its root to be judged by.

    Sums over examples, with output f and target y: ``loss``, (f - y)^2; ``absolute-error``,
    |f - y|; ``target``, y; ``squared-target``, y^2.

    Parameters
    ----------
    headline : str
        One of ``common.config.task.SCORES["regression"]``.
    """

    loss_name = "squared-error"
    answer = "numbers"
    by_client: tuple[str, ...] = ("rmse", "mae", "r2")
    sums: Mapping[str, int | None] = dict.fromkeys((records.LOSS, ABSOLUTE, TARGETS, SQUARES))
    counts: Mapping[str, int] = MappingProxyType({})

    def __init__(self, headline: str = "rmse") -> None:
        self.headline = Headline.of(headline)

    def forward(self, model: SplitModel, batch: Batch) -> Step:
        """Return the mean squared error of a batch; ``output`` is ``[batch, 1]``."""
        z = model.encoder(batch.x).float()
        output = model.predictor(z).float()
        loss = F.mse_loss(output.squeeze(1), batch.y)
        return Step(batch.x, batch.y, batch.index, z, output, loss, model)

    def answers(self, output: Tensor) -> Tensor:
        """Return the numbers, ``[batch]``."""
        return output.squeeze(1)

    def measure(self, model: SplitModel, examples: ExampleSet) -> Sums:
        """Add up errors and moments, in float64."""
        totals = torch.zeros(len(self.sums), dtype=torch.float64, device=examples.y.device)
        with evaluating(model):
            for x, y in examples.batches_in_order(base.BATCH_SIZE):
                target = y.double()
                error = model(x).squeeze(1).double() - target
                each = torch.stack([error.square(), error.abs(), target, target.square()])
                totals += each.sum(dim=1)
        sums = dict(zip(self.sums, totals.tolist(), strict=True))
        return {records.NUM_EXAMPLES: len(examples), **sums}

    def why_not(self, sums: Sums) -> str:
        """Return which inequality between moments does not hold.

        For n numbers, |sum|^2 is at most n times the sum of squares (Cauchy and Schwarz).
        """
        n = number(sums, records.NUM_EXAMPLES)
        pairs = ((ABSOLUTE, records.LOSS), (TARGETS, SQUARES))
        for name in (records.LOSS, ABSOLUTE, SQUARES):
            if number(sums, name) < 0:
                return f"its sum {name!r} is {number(sums, name):g}, it can't be below 0"
        for first, second in pairs:
            total, squares = number(sums, first), number(sums, second)
            # By roots: the square of a large number may be infinite.
            if abs(total) > math.sqrt(n) * math.sqrt(squares) * (1 + ROUNDING):
                return (
                    f"its sums contradict each other: {first!r} is {total:g} and {second!r} "
                    f"{squares:g} over {n:g} examples"
                )
        return ""

    def score(self, sums: Sums) -> Scores:
        """Return ``rmse``, ``mae``, ``r2``, mean squared error as ``loss``, and ``examples``.

        ``r2`` is 1 - sum (f - y)^2 / sum (y - mean y)^2, not defined where all targets are equal.
        """
        n = number(sums, records.NUM_EXAMPLES)
        if not n:
            names = ("rmse", "mae", "r2", "loss")
            values: dict[str, object] = {**dict.fromkeys(names), "examples": n}
            reasons = dict.fromkeys(names, "there are no examples")
            return with_headline(self.headline, values, reasons)
        loss, squares = number(sums, records.LOSS), number(sums, SQUARES)
        spread = squares - number(sums, TARGETS) ** 2 / n
        constant = spread <= ROUNDING * squares
        return with_headline(
            self.headline,
            {
                "rmse": math.sqrt(loss / n),
                "mae": number(sums, ABSOLUTE) / n,
                "r2": None if constant else 1 - loss / spread,
                "loss": loss / n,
                "examples": n,
            },
            {"r2": "all targets are equal" if constant else ""},
        )

    def guessing(self, score: float, scores: Mapping[str, object]) -> str:
        """Compare with guessing the mean of all targets, whose R2 is 0."""
        r2 = score if self.headline.name == "r2" else scores.get("r2")
        if not isinstance(r2, float) or r2 > 0:
            return ""
        return f"{score:.3f} (R2 {r2:.3f}), no better than guessing the mean of the targets"

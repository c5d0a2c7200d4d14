"""A client's evaluation of the global model."""

from __future__ import annotations

from flwr.app import MetricRecord

from common import records
from common.data import ExampleSet
from common.evaluation import count_correct
from common.models import SplitModel


def evaluate(model: SplitModel, examples: ExampleSet) -> MetricRecord:
    """Return the counts from which the server makes accuracies.

    Counts rather than accuracies: sums over clients of whole numbers are exact. A client without
    evaluation examples answers with ``num-examples`` 0.
    """
    counts = count_correct(model, examples)
    return MetricRecord(
        {
            records.NUM_EXAMPLES: counts.total,
            records.LOSS: counts.loss,
            records.CORRECT: counts.correct,
            records.CLASS_CORRECT: list(counts.class_correct),
            records.CLASS_TOTAL: list(counts.class_total),
        }
    )

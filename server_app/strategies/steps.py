"""How many steps a client says it took, for what the server divides by them."""

from __future__ import annotations

from typing import cast

from flwr.app import Message, MetricRecord

from common import records
from common.config import TrainSettings
from common.data.batches import batches_in_epoch


def steps_of(reply: Message) -> int:
    """Return the steps of an admitted train reply."""
    return int(cast(float, _metrics(reply)[records.STEPS]))


def why_not_steps(reply: Message, train: TrainSettings) -> str:
    """Return why the reply's number of steps can't be right, or "".

    No bound on the model's change holds what is divided by it.
    """
    examples = int(cast(int, _metrics(reply)[records.NUM_EXAMPLES]))
    steps = _metrics(reply).get(records.STEPS)
    in_epoch = batches_in_epoch(examples, train.batch_size, drop_last=train.drop_last)
    expected = train.local_steps or train.local_epochs * in_epoch
    if steps == expected:
        return ""
    return f"metric {records.STEPS!r} is {steps!r}, {examples} examples make {expected}"


def _metrics(reply: Message) -> MetricRecord:
    return records.of_type(reply.content, MetricRecord)[records.METRICS]

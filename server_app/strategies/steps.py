"""How many steps a client says it took, for what the server divides by them."""

from __future__ import annotations

from typing import cast

from flwr.app import Message

from common import records
from common.config import TrainSettings
from common.data.batches import batches_in_epoch


def steps_of(reply: Message) -> int:
    """Return the steps of an admitted train reply."""
    return int(cast(float, records.metrics_of(reply)[records.STEPS]))


def why_not_steps(reply: Message, train: TrainSettings) -> str:
    """Return why the reply's number of steps can't be right, or "".

    No bound on the model's change holds what is divided by it.
    """
    examples = records.num_examples(reply)
    steps = records.metrics_of(reply).get(records.STEPS)
    in_epoch = batches_in_epoch(examples, train.batch_size, drop_last=train.drop_last)
    expected = train.local_steps or train.local_epochs * in_epoch
    if steps == expected:
        return ""
    return f"metric {records.STEPS!r} is {steps!r}, {examples} examples make {expected}"

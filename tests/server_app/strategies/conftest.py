"""An inner strategy and replies to wrap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor

from common import records


class Recorder(FedAvg):
    """FedAvg that sends nothing and remembers what it was asked."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the config."""
        self.config = ConfigRecord(dict(config))
        return []


@pytest.fixture
def inner() -> Recorder:
    """Return an aggregator that needs no grid."""
    return Recorder(min_train_nodes=1, min_available_nodes=1)


@pytest.fixture
def reply() -> Callable[..., Message]:
    """Return a maker of train replies: ``reply(node_id, state, examples, counts)``."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0

    def make(node_id: int, state: dict[str, Tensor], examples: int, counts: Any = None) -> Message:
        content = RecordDict(
            {
                records.ARRAYS: records.to_arrays(state),
                records.METRICS: MetricRecord({records.NUM_EXAMPLES: examples, "loss": 1.0}),
            }
        )
        if counts is not None:
            content[records.LABEL_COUNTS] = ConfigRecord({"counts": counts})
        request = Message(RecordDict(), dst_node_id=node_id, message_type=MessageType.TRAIN)
        return Message(content, reply_to=request)

    return make

"""Plain means: every client counts the same."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord

from common import records
from server_app.strategies.wrapper import Wrapper


class UniformWeights(Wrapper):
    """Let the strategy inside see one example per client, so that its means are plain means.

    FedGen's paper averages client models this way (Algorithm 1), its published code by examples.
    """

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Set every reply's ``num-examples`` to 1, in place, and aggregate."""
        replies = list(replies)
        for reply in replies:
            records.of_type(reply.content, MetricRecord)[records.METRICS][records.NUM_EXAMPLES] = 1
        return super().aggregate_train(server_round, replies)

"""Aggregators that are to withstand clients which send nonsense."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import MultiKrum

from common.config import ServerSettings


class MultiKrumOfReplies(MultiKrum):
    """MultiKrum that leaves out ``malicious-clients`` of the replies that are there.

    Flower's chooses a fixed number of replies: in a round in which an honest client is missing,
    that number takes a malicious one in.
    """

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate all but as many replies as there may be malicious clients."""
        replies = list(replies)
        self.num_nodes_to_select = max(1, len(replies) - self.num_malicious_nodes)
        return super().aggregate_train(server_round, replies)


def weakness(settings: ServerSettings, clients: int) -> str:
    """Return why a robust aggregator does not protect with this number of clients, or "".

    FedTrimmedAvg cuts ``int(trim * n)`` values at each end. Krum's proof needs ``n > 2 f + 2``
    (Blanchard et al., NeurIPS 2017, Proposition 4.3).
    """
    if settings.aggregator == "fedtrimmedavg" and int(settings.trim * clients) == 0:
        return (
            f"server.trim = {settings.trim:g} of {clients} clients cuts nobody off, so "
            "fedtrimmedavg is a plain mean: it needs server.trim of at least 1/clients"
        )
    if settings.aggregator == "multikrum":
        malicious = settings.malicious_clients
        if malicious == 0:
            return "multikrum expects no malicious client: set server.malicious-clients"
        if clients <= 2 * malicious + 2:
            return (
                f"multikrum withstands {malicious} malicious clients among more than "
                f"{2 * malicious + 2}, a round has {clients}"
            )
    return ""

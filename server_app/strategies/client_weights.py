"""What a client weighs in means, other than the number of its examples."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import cast

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from common import records
from common.config import ServerSettings
from common.logs import NAME
from server_app.strategies.wrapper import Clients, Wrapper

log = logging.getLogger(NAME)


def client_weight(examples: float, client: str, settings: ServerSettings) -> float:
    """Return what a client weighs in the mean of models and of metrics, above 0.

    Its number of examples, or 1 (``server.weighting``), times its own factor, if
    ``server.client-weights`` gives it one.
    """
    base = 1 if settings.weighting == "uniform" else examples
    factor = settings.factors.get(client)
    return base if factor is None else base * factor


class ClientWeights(Wrapper):
    """Let the strategy inside see :func:`client_weight` as the number of each client's examples.

    FedGen's paper averages client models with equal weights (Algorithm 1), its published code by
    examples.

    Parameters
    ----------
    strategy : Strategy
    settings : ServerSettings
    clients : Clients
        Names in ``client-weights`` that are not among them are warned about: they may come later.
    """

    def __init__(self, strategy: Strategy, settings: ServerSettings, clients: Clients) -> None:
        super().__init__(strategy)
        self._settings, self._clients = settings, clients
        here = set(clients.label_counts())
        if absent := sorted(set(settings.factors) - here):
            log.warning(
                "server.client-weights names %s, of which nobody is here now. Here are %s",
                ", ".join(absent),
                ", ".join(sorted(here)),
            )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Set every reply's ``num-examples`` to its client's weight, in place, and aggregate."""
        replies = list(replies)
        for reply in replies:
            metrics = records.of_type(reply.content, MetricRecord)[records.METRICS]
            name = self._clients.name_of(reply.metadata.src_node_id)
            examples = cast(int, metrics[records.NUM_EXAMPLES])
            metrics[records.NUM_EXAMPLES] = client_weight(examples, name, self._settings)
        return super().aggregate_train(server_round, replies)

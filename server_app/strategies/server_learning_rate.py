"""A learning rate of the server that changes from round to round."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvgM
from flwr.serverapp.strategy.fedopt import FedOpt

from common.config import LearningRateSettings
from common.schedules import learning_rate
from server_app.strategies.wrapper import Wrapper


class ServerLearningRate(Wrapper):
    """Give FedAvgM, FedAdam or FedYogi the learning rate of the round.

    Parameters
    ----------
    strategy : FedAvgM or FedOpt
    settings : LearningRateSettings
    """

    def __init__(self, strategy: FedAvgM | FedOpt, settings: LearningRateSettings) -> None:
        super().__init__(strategy)
        self._inside, self._settings = strategy, settings
        if isinstance(strategy, FedAvgM):
            # Without momentum it takes no steps of its own if its first learning rate is 1.
            strategy.server_opt = True

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Set the learning rate and aggregate."""
        rate = learning_rate(self._settings, server_round)
        if isinstance(self._inside, FedAvgM):
            self._inside.server_learning_rate = rate
        else:
            self._inside.eta = rate
        return super().aggregate_train(server_round, replies)

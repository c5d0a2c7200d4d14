"""FedProx on the server: its weight travels with the instruction."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from common import records
from common.config import FedProxSettings
from server_app.strategies.wrapper import Wrapper


class FedProx(Wrapper):
    """Send ``mu``; aggregation is that of the strategy inside."""

    def __init__(self, strategy: Strategy, settings: FedProxSettings) -> None:
        super().__init__(strategy)
        self._settings = settings

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add ``fedprox.mu`` to the config."""
        config[records.FEDPROX_MU] = self._settings.mu
        return super().configure_train(server_round, arrays, config, grid)

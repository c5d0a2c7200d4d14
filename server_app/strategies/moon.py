"""MOON on the server: its numbers travel with the instruction."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from common import records
from common.config import MoonSettings
from server_app.strategies.wrapper import Wrapper


class Moon(Wrapper):
    """Send ``mu``, the temperature and the buffer size.

    MOON changes local training only (Li, He, Song 2021, section 3.3): previous local models stay
    on the clients' disks, and aggregation is that of the strategy inside.
    """

    def __init__(self, strategy: Strategy, settings: MoonSettings) -> None:
        super().__init__(strategy)
        self._settings = settings

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the ``moon.*`` numbers to the config."""
        config[records.MOON_MU] = self._settings.mu
        config[records.MOON_TEMPERATURE] = self._settings.temperature
        config[records.MOON_BUFFER_SIZE] = self._settings.buffer_size
        return super().configure_train(server_round, arrays, config, grid)

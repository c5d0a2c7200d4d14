"""SCAFFOLD on the server (Karimireddy et al., ICML 2020, Algorithm 1, option II)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from common import records
from common.config import Settings
from common.logs import NAME
from common.mirrored import control_variate_change
from common.models import SplitModel, shared_parameters
from common.schedules import learning_rate
from common.second_model import pack_model, unpack_model
from server_app.strategies.mirrored import MirroredSum, shared_in
from server_app.strategies.steps import steps_of, why_not_steps
from server_app.strategies.wrapper import Clients, Wrapper

log = logging.getLogger(NAME)


class Scaffold(Wrapper):
    """Send the mean c of the clients' control variates; derive their changes from the replies.

    ``c <- c + 1/m sum_P (c_k' - c_k)`` (Eq. 5): c stays the mean of all c_k, weighted as models
    are (``server.weighting``; the paper weighs all clients alike). The global step is that of the
    aggregator inside.

    Parameters
    ----------
    strategy : Strategy
        Aggregates the models.
    settings : Settings
    model : SplitModel
        For the names and shapes of its shared parameters.
    clients : Clients
    """

    def __init__(
        self, strategy: Strategy, settings: Settings, model: SplitModel, clients: Clients
    ) -> None:
        super().__init__(strategy)
        if problem := weakness(settings):
            log.warning("%s", problem)
        self._settings = settings
        self._zeros = {
            name: torch.zeros_like(model.get_parameter(name), device="cpu", requires_grad=False)
            for name in shared_parameters(model, settings.model)
        }
        self._own = MirroredSum(clients, uniform=settings.server.weighting == "uniform")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add c, which is zero and left out before the first reply."""
        self._received, self._c = shared_in(arrays, self._zeros), self._zeros
        if c := self._own.mean():
            names, dtype = set(c), self._settings.wire.dtype
            blob = pack_model(c, names, dtype)
            config[records.SCAFFOLD_C] = blob
            # As the clients see it, or its rounding would build up in the sum.
            self._c = unpack_model(blob, self._zeros, names, dtype, "control variate")
        return self._own.addressed(super().configure_train(server_round, arrays, config, grid))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate inside, then add up how the clients' control variates have changed."""
        weighted = self._own.weighted(replies)
        arrays, metrics = super().aggregate_train(server_round, [each.reply for each in weighted])
        if arrays is not None:
            rate = learning_rate(self._settings.train, server_round)
            for each in weighted:
                trained = shared_in(each.arrays, self._zeros)
                change = control_variate_change(
                    self._received, trained, self._c, steps_of(each.reply), rate
                )
                self._own.add(server_round, each, change)
        return arrays, metrics

    def why_not(self, client: str, reply: Message) -> str:
        """Return why the number of steps, a divisor of c_k's change, can't be right, or ""."""
        return why_not_steps(reply, self._settings.train)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sum of the clients' control variates, and which replies are in it."""
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put :meth:`state_dict` back."""
        self._own.load_state_dict(state)


def weakness(settings: Settings) -> str:
    """Return why SCAFFOLD may do badly with these settings, or ""."""
    if settings.server.fraction_train == 1:
        return ""
    return (
        f"server.fraction-train = {settings.server.fraction_train:g}: control variates of clients "
        "that sit out grow old, and with 10 of 100 clients a round SCAFFOLD collapsed in a study "
        "(NIID-Bench, Li et al., ICDE 2022); docs/algorithms.md#scaffold has our own numbers"
    )

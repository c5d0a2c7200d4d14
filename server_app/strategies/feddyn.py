"""FedDyn on the server (Acar et al., ICLR 2021, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from common import records
from common.config import Settings
from common.mirrored import gradient_change
from common.models import SplitModel, shared_parameters
from server_app.strategies.mirrored import MirroredSum, shared_in
from server_app.strategies.wrapper import Clients, Wrapper


class FedDyn(Wrapper):
    """``h <- h - alpha/m sum_P (theta_k - theta^t)``, ``theta^{t+1} = mean_P theta_k - h/alpha``.

    h is the mean of all clients' g_k, weighted as models are (``server.weighting``; the paper
    weighs all clients alike). Buffers are the mean alone.

    Parameters
    ----------
    strategy : Strategy
        A mean of the models.
    settings : Settings
    model : SplitModel
        For the names and shapes of its shared parameters.
    clients : Clients
    """

    def __init__(
        self, strategy: Strategy, settings: Settings, model: SplitModel, clients: Clients
    ) -> None:
        super().__init__(strategy)
        self._alpha = settings.feddyn.alpha
        self._names = shared_parameters(model, settings.model)
        self._own = MirroredSum(clients, uniform=settings.server.weighting == "uniform")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember theta^t, and tell every client which of its rounds counted last."""
        self._received = shared_in(arrays, self._names)
        return self._own.addressed(super().configure_train(server_round, arrays, config, grid))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate inside, add up how the clients' gradients changed, and take h/alpha off."""
        weighted = self._own.weighted(replies)
        arrays, metrics = super().aggregate_train(server_round, [each.reply for each in weighted])
        if arrays is None:
            return None, metrics
        for each in weighted:
            trained = shared_in(each.arrays, self._names)
            change = gradient_change(self._received, trained, self._alpha)
            self._own.add(server_round, each, change)
        h, mean = self._own.mean(), records.to_tensors(arrays)
        moved = {name: mean[name] - h[name] / self._alpha for name in h}
        return records.to_arrays(mean | moved), metrics

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sum of the clients' gradients, and which replies are in it."""
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put :meth:`state_dict` back."""
        self._own.load_state_dict(state)

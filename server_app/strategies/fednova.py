"""FedNova's normalised averaging (Wang et al., NeurIPS 2020, arXiv:2007.07481)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from common import records
from common.config import Settings
from common.models import SplitModel, shared_parameters
from server_app.strategies.mirrored import shared_in
from server_app.strategies.steps import steps_of, why_not_steps
from server_app.strategies.wrapper import Wrapper


def normaliser(steps: int, momentum: float) -> float:
    """Return ``a_k``: how many plain steps as long as one gradient a client's steps amount to.

    ``tau`` for plain SGD, ``(tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho)`` with momentum rho
    (section 4), whose velocity begins at zero in every round.

    Parameters
    ----------
    steps : int
        tau, at least 1.
    momentum : float
        rho, in [0, 1).
    """
    rest = 1 - momentum
    return (steps - momentum * (1 - momentum**steps) / rest) / rest


def step_length(weights: Sequence[float], normalisers: Sequence[float]) -> float:
    """Return ``(sum p_k a_k) (sum p_k / a_k)``, at least 1.

    How many times the way to the mean with weights ``p_k / a_k`` the new model goes:
    ``theta - (sum p_k a_k) sum p_k (theta - theta_k) / a_k`` as one mean of models. 1
    where all take the same steps, and the model is then FedAvg's.
    """
    total = sum(weights)
    pairs = list(zip(weights, normalisers, strict=True))
    return sum(p * a for p, a in pairs) / total * (sum(p / a for p, a in pairs) / total)


class FedNova(Wrapper):
    """Clients that take more steps don't pull the model further than others.

    The innermost wrapper: ``p_k`` is whatever weight the reply has when it gets here. Buffers, and
    the means of the clients' metrics, have the weights ``p_k / a_k``.

    Parameters
    ----------
    strategy : Strategy
        A mean of the models, weighted by ``num-examples``.
    settings : Settings
    model : SplitModel
        For the names of its shared parameters.
    """

    def __init__(self, strategy: Strategy, settings: Settings, model: SplitModel) -> None:
        super().__init__(strategy)
        self._train = settings.train
        self._names = shared_parameters(model, settings.model)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember theta."""
        self._received = shared_in(arrays, self._names)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Set every reply's ``num-examples`` to ``p_k / a_k``, in place, and aggregate."""
        replies = list(replies)
        metrics = [records.metrics_of(reply) for reply in replies]
        weights = [float(cast(float, each[records.NUM_EXAMPLES])) for each in metrics]
        normalisers = [normaliser(steps_of(reply), self._train.momentum) for reply in replies]
        for each, p, a in zip(metrics, weights, normalisers, strict=True):
            each[records.NUM_EXAMPLES] = p / a
        arrays, means = super().aggregate_train(server_round, replies)
        if arrays is None:
            return None, means
        length, mean = step_length(weights, normalisers), records.to_tensors(arrays)
        moved = {
            name: theta + length * (mean[name] - theta) for name, theta in self._received.items()
        }
        return records.to_arrays(mean | moved), means

    def why_not(self, client: str, reply: Message) -> str:
        """Return why the reply's number of steps can't be right, or ""."""
        return why_not_steps(reply, self._train)

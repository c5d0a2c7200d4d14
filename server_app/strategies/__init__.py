"""Strategies: Flower's aggregators innermost, wrappers of algorithms around them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypedDict

import torch
from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
    Strategy,
)
from flwr.serverapp.strategy.fedopt import FedOpt

from common.config import ServerSettings, Settings
from common.logs import NAME
from common.models import SplitModel
from server_app.strategies.client_weights import ClientWeights
from server_app.strategies.feddyn import FedDyn
from server_app.strategies.fedgen.fedgen import FedGen
from server_app.strategies.fednova import FedNova
from server_app.strategies.robust import MultiKrumOfReplies, weakness
from server_app.strategies.scaffold import Scaffold
from server_app.strategies.server_learning_rate import ServerLearningRate
from server_app.strategies.wrapper import Clients

log = logging.getLogger(NAME)


class _Sampling(TypedDict):
    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int


# The loop shows a strategy just the clients of this round, and it takes them all.
_ALL = _Sampling(
    fraction_train=1.0,
    fraction_evaluate=1.0,
    min_train_nodes=1,
    min_evaluate_nodes=1,
    min_available_nodes=1,
)

AGGREGATORS: dict[str, Callable[[ServerSettings], Strategy]] = {
    "fedavg": lambda settings: FedAvg(**_ALL),
    "fedavgm": lambda settings: FedAvgM(
        **_ALL, server_learning_rate=settings.learning_rate, server_momentum=settings.momentum
    ),
    "fedadam": lambda settings: FedAdam(**_ALL, eta=settings.learning_rate),
    "fedyogi": lambda settings: FedYogi(**_ALL, eta=settings.learning_rate),
    "fedadagrad": lambda settings: FedAdagrad(**_ALL, eta=settings.learning_rate),
    "fedmedian": lambda settings: FedMedian(**_ALL),
    "fedtrimmedavg": lambda settings: FedTrimmedAvg(**_ALL, beta=settings.trim),
    "multikrum": lambda settings: MultiKrumOfReplies(
        **_ALL, num_malicious_nodes=settings.malicious_clients
    ),
}
"""By the name in ``server.aggregator``."""


Wrap = Callable[[Strategy, Settings, SplitModel, Clients, torch.device], Strategy]

WRAPPERS: dict[str, Wrap] = {
    "scaffold": lambda inner, settings, model, clients, _: Scaffold(
        inner, settings, model, clients
    ),
    "feddyn": lambda inner, settings, model, clients, _: FedDyn(inner, settings, model, clients),
    "fedgen": lambda inner, settings, model, clients, device: FedGen(
        inner,
        settings.fedgen,
        model,
        clients,
        settings.seed,
        device,
        _most_drawn(settings),
        settings.wire.dtype,
    ),
}
"""Of the algorithms for which the server does something, by their names in ``algorithm``."""

AVERAGES: dict[str, Callable[[Strategy, Settings, SplitModel], Strategy]] = {"fednova": FedNova}
"""Of those that change the mean itself: they go next to the aggregator, inside of all weights."""


def build_strategy(
    settings: Settings, model: SplitModel, clients: Clients, device: torch.device
) -> Strategy:
    """Return the aggregator in the wrappers that ``settings.algorithm`` asks for."""
    per_round = max(1, int(settings.server.fraction_train * len(clients.label_counts())))
    if problem := weakness(settings.server, per_round):
        log.warning("%s", problem)
    strategy = AGGREGATORS[settings.server.aggregator](settings.server)
    if isinstance(strategy, FedAvgM | FedOpt) and settings.server.learning_rate_changes:
        strategy = ServerLearningRate(strategy, settings.server)
    for name in settings.algorithms:
        if name in AVERAGES:
            strategy = AVERAGES[name](strategy, settings, model)
    if settings.server.weighting == "uniform" or settings.server.factors:
        strategy = ClientWeights(strategy, settings.server, clients)
    for name in settings.algorithms:
        if name in WRAPPERS:
            strategy = WRAPPERS[name](strategy, settings, model, clients, device)
    return strategy


def _most_drawn(settings: Settings) -> Callable[[int], int] | None:
    if settings.fedgen.label_counts == "all":
        return None
    train = settings.train
    if train.local_steps:
        # A single example at the end of an epoch joins the batch before it.
        return lambda examples: train.local_steps * (train.batch_size + 1)
    return lambda examples: train.local_epochs * examples

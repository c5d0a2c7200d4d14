"""The registry: aggregators innermost, wrappers around them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg, FedAvgM, FedMedian
from torch import nn

from common import records
from common.config import Settings
from common.models import SplitModel
from server_app.strategies import AGGREGATORS, build_strategy
from server_app.strategies.client_weights import ClientWeights
from server_app.strategies.fedgen.fedgen import FedGen
from server_app.strategies.wrapper import chain
from tests.server_app.strategies.conftest import Recorder
from tests.settings import make_settings

CPU = torch.device("cpu")


class Clients:
    """Four clients that hold both labels."""

    def name_of(self, node_id: int) -> str:
        return str(node_id)

    def label_counts(self) -> dict[str, list[int]]:
        return {str(node): [1, 1] for node in range(4)}


def make_model() -> SplitModel:
    return SplitModel(nn.Linear(2, 3), nn.Linear(3, 2), 3, 2)


def test_what_an_algorithm_does_on_the_server_is_a_wrapper_around_the_aggregator() -> None:
    settings = make_settings(**{"algorithm": "moon+fedgen", "server.aggregator": "fedmedian"})
    outer = build_strategy(settings, make_model(), Clients(), CPU)
    assert isinstance(outer, FedGen)
    assert isinstance(outer.strategy, FedMedian)


@pytest.mark.parametrize("algorithm", ["fedavg", "moon", "fedprox+moon"])
def test_where_the_server_does_nothing_the_strategy_is_flowers_own(algorithm: str) -> None:
    strategy = build_strategy(make_settings(algorithm=algorithm), make_model(), Clients(), CPU)
    assert type(strategy) is FedAvg


@pytest.mark.parametrize("aggregator", sorted(AGGREGATORS))
def test_every_aggregator_aggregates_equal_replies_to_themselves(
    aggregator: str, reply: Callable[..., Message]
) -> None:
    settings = make_settings(**{"algorithm": "fedavg", "server.aggregator": aggregator})
    strategy = build_strategy(settings, make_model(), Clients(), CPU)
    state = {"weight": torch.ones(2, 2)}
    arrays = records.to_arrays(state)
    strategy.configure_train(1, arrays, ConfigRecord(), _Grid())  # type: ignore[arg-type]
    aggregated, _ = strategy.aggregate_train(1, [reply(node, state, 5) for node in range(4)])
    assert aggregated is not None
    restored = records.like(aggregated, arrays)  # FedAdam returns float64
    torch.testing.assert_close(records.to_tensors(restored)["weight"], state["weight"])


class _Grid:
    def get_node_ids(self) -> list[int]:
        return [0, 1, 2, 3]


def test_uniform_weighting_is_the_plain_mean_whatever_the_examples(
    inner: Recorder, reply: Callable[..., Message]
) -> None:
    replies = [reply(1, {"w": torch.tensor([0.0])}, 999), reply(2, {"w": torch.tensor([1.0])}, 1)]
    settings = make_settings(**{"server.weighting": "uniform"}).server
    aggregated, _ = ClientWeights(inner, settings, Clients()).aggregate_train(1, replies)
    assert aggregated is not None
    assert records.to_tensors(aggregated)["w"].item() == 0.5


@pytest.mark.parametrize(
    ("weighting", "expected"),
    # Client 1 has 30 examples, clients 2 and 3 have 10 each; 2 counts four times.
    [("examples", (30 * 0 + 40 * 1 + 10 * 2) / 80), ("uniform", (0 + 4 * 1 + 2) / 6)],
)
def test_a_clients_own_weight_is_a_factor_on_what_it_weighs(
    inner: Recorder, reply: Callable[..., Message], weighting: str, expected: float
) -> None:
    weights = {"server.weighting": weighting, "server.client-weights": "2=4"}
    sent = [
        reply(node, {"w": torch.tensor([float(node - 1)])}, 30 if node == 1 else 10)
        for node in (1, 2, 3)
    ]
    strategy = ClientWeights(inner, make_settings(**weights).server, Clients())
    aggregated, _ = strategy.aggregate_train(1, sent)
    assert aggregated is not None
    assert records.to_tensors(aggregated)["w"].item() == pytest.approx(expected)


def test_a_weight_of_somebody_who_is_not_here_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = make_settings(**{"algorithm": "fedavg", "server.client-weights": "2=4,site-x=2"})
    strategy = build_strategy(settings, make_model(), Clients(), CPU)
    assert isinstance(strategy, ClientWeights)
    assert "server.client-weights names site-x, of which nobody is here now" in caplog.text


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_the_weighting_setting_decides_whether_means_are_plain(weighting: str) -> None:
    settings = make_settings(**{"algorithm": "fedavg", "server.weighting": weighting})
    strategy = build_strategy(settings, make_model(), Clients(), CPU)
    assert isinstance(strategy, ClientWeights) == (weighting == "uniform")


@pytest.mark.parametrize(
    ("counts", "usable"),
    [
        # 33 examples in batches of 32: the last one joins, and 20 steps draw 20 * 33.
        ([1 + 20 * 33, 1], True),
        ([1 + 20 * 33 + 1, 1], False),
    ],
)
def test_drawn_label_counts_are_those_that_a_round_can_draw(
    reply: Callable[..., Message], counts: list[int], usable: bool
) -> None:
    settings = make_settings(
        **{
            "algorithm": "fedgen",
            "fedgen.label-counts": "drawn",
            "train.local-steps": 20,
            "train.batch-size": 32,
        }
    )
    fedgen = build_strategy(settings, make_model(), Clients(), CPU)
    assert isinstance(fedgen, FedGen)
    assert (fedgen.why_not("0", reply(0, {}, 33, counts)) == "") == usable


@pytest.mark.parametrize("aggregator", ["fedavgm", "fedadam", "fedyogi"])
def test_the_servers_learning_rate_is_that_of_the_round(
    aggregator: str, reply: Callable[..., Message]
) -> None:
    # A run whose rate is halved in round 3 takes, in each round, the step of one with that rate.
    changing = {"server.learning-rate-decay": 0.5, "server.learning-rate-rounds": 2}
    base = {"algorithm": "fedavg", "server.aggregator": aggregator, "server.momentum": 0.0}
    rates = [1.0, 1.0, 0.5]
    found = _steps(make_settings(**base, **changing), reply, len(rates))
    for server_round, rate in enumerate(rates, start=1):
        constant = _steps(make_settings(**base, **{"server.learning-rate": rate}), reply, 3)
        torch.testing.assert_close(found[server_round - 1], constant[server_round - 1])
    assert not torch.allclose(found[2], found[1])


def _steps(settings: Settings, reply: Callable[..., Message], rounds: int) -> list[torch.Tensor]:
    """Return the change of each round; every round begins at one and its clients are at zero."""
    strategy = build_strategy(settings, make_model(), Clients(), CPU)
    changes = []
    for server_round in range(1, rounds + 1):
        arrays = records.to_arrays({"w": torch.ones(2)})
        for each in chain(strategy):
            if isinstance(each, FedAvgM):
                each.current_arrays = None  # its own copy of the model
        strategy.configure_train(server_round, arrays, ConfigRecord(), _Grid())  # type: ignore[arg-type]
        sent = [reply(node, {"w": torch.zeros(2)}, 5) for node in range(4)]
        aggregated, _ = strategy.aggregate_train(server_round, sent)
        assert aggregated is not None
        changes.append(records.to_tensors(aggregated)["w"].float() - 1)
    return changes

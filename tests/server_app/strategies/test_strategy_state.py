"""A strategy that was saved and loaded goes on with the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg, MultiKrum, Strategy
from torch import Tensor, nn

from common import records
from common.models import SplitModel
from common.storage import pack_tensors, unpack_tensors
from server_app.strategies import AGGREGATORS, build_strategy
from server_app.strategies.strategy_state import (
    StrategyStateError,
    load_strategy_state,
    strategy_state,
)
from tests.settings import make_settings

CPU = torch.device("cpu")
SMALL = {"fedgen.noise-dim": 4, "fedgen.hidden-dim": 8, "fedgen.server-steps": 2}


class Clients:
    """Nodes 11 and 12."""

    def name_of(self, node_id: int) -> str:
        return {11: "a", 12: "b"}[node_id]

    def label_counts(self) -> dict[str, list[int]]:
        return {"a": [6, 0, 0], "b": [2, 2, 0]}


class Grid:
    """Shows the two nodes."""

    def get_node_ids(self) -> list[int]:
        return [11, 12]


def model() -> SplitModel:
    """Return a model with an integer buffer and one whose mean is not a whole number."""
    torch.manual_seed(0)
    return SplitModel(nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3), 5, 3)


def build(**overrides: object) -> Strategy:
    base = {"server.learning-rate": 0.3, "server.momentum": 0.5, **SMALL}
    return build_strategy(make_settings(**base | overrides), model(), Clients(), CPU)


def play(
    strategy: Strategy, reply: Callable[..., Message], state: dict[str, Tensor], server_round: int
) -> dict[str, Tensor]:
    """Let both clients move every weight and count one batch or two; return the new model."""
    arrays = records.to_arrays(state)
    config = ConfigRecord({"round": server_round})
    strategy.configure_train(server_round, arrays, config, Grid())  # type: ignore[arg-type]
    replies = []
    for node, step, counts in ((11, 0.1 * server_round, [5, 1, 0]), (12, -0.4, [2, 1, 1])):
        moved = {
            name: t + step if t.is_floating_point() else t + (1 if node == 11 else 4)
            for name, t in state.items()
        }
        replies.append(reply(node, moved, node, counts))
    if "FedGen" not in type(strategy).__name__:
        for each in replies:
            each.content.pop(records.LABEL_COUNTS)
    aggregated, _ = strategy.aggregate_train(server_round, replies)
    assert aggregated is not None
    return records.to_tensors(records.like(aggregated, arrays))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedgen", "moon+fedgen"])
@pytest.mark.parametrize("aggregator", sorted(AGGREGATORS))
def test_a_loaded_strategy_gives_the_bits_of_one_that_was_never_saved(
    algorithm: str, aggregator: str, reply: Callable[..., Message]
) -> None:
    overrides = {"algorithm": algorithm, "server.aggregator": aggregator}
    steady, state = build(**overrides), model().state_dict()
    for server_round in (1, 2):
        state = play(steady, reply, state, server_round)
    # Through the bytes of a file: names, dtypes and shapes have to survive it.
    saved, _ = unpack_tensors(pack_tensors(strategy_state(steady), {}))
    resumed = build(**overrides)
    load_strategy_state(resumed, saved)
    expected, found = dict(state), dict(state)
    for server_round in (3, 4):
        expected = play(steady, reply, expected, server_round)
        found = play(resumed, reply, found, server_round)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    after, again = strategy_state(steady), strategy_state(resumed)
    assert list(after) == list(again)
    assert all(torch.equal(after[name], again[name]) for name in after)


@pytest.mark.parametrize("aggregator", ["fedadam", "fedyogi", "fedavgm"])
def test_the_moments_matter(aggregator: str, reply: Callable[..., Message]) -> None:
    # Without this, the test above would pass if nothing were saved at all.
    overrides = {"algorithm": "fedavg", "server.aggregator": aggregator}
    steady = build(**overrides)
    state = play(steady, reply, model().state_dict(), 1)
    forgetful = play(build(**overrides), reply, state, 2)
    kept = play(steady, reply, state, 2)
    assert not all(torch.equal(kept[name], forgetful[name]) for name in kept)


def test_saved_tensors_are_named_after_their_strategy(reply: Callable[..., Message]) -> None:
    strategy = build(algorithm="moon+fedgen", **{"server.aggregator": "fedadam"})
    play(strategy, reply, model().state_dict(), 1)
    names = set(strategy_state(strategy))
    assert {"FedGen/trained", "FedGen/counts.a", "FedGen/counts.b"} <= names
    assert {"FedGen/generator.norm.running_mean", "FedGen/adam.0.exp_avg"} <= names
    assert {"FedAdam/m_t/predictor.weight", "FedAdam/v_t/predictor.weight"} <= names


def test_multikrum_selects_as_many_as_at_the_start_whoever_is_connected_now() -> None:
    krum = MultiKrum(num_malicious_nodes=1, num_nodes_to_select=7)
    other = MultiKrum(num_malicious_nodes=1, num_nodes_to_select=3)
    load_strategy_state(other, strategy_state(krum))
    assert other.num_nodes_to_select == 7


def test_state_of_a_strategy_that_is_not_there_is_refused() -> None:
    with pytest.raises(StrategyStateError, match="FedGen/trained"):
        load_strategy_state(FedAvg(), {"FedGen/trained": torch.tensor(1)})


def test_state_that_does_not_fit_is_refused(reply: Callable[..., Message]) -> None:
    strategy = build(algorithm="fedgen")
    play(strategy, reply, model().state_dict(), 1)
    saved = strategy_state(strategy)
    with pytest.raises(StrategyStateError, match="FedGen does not fit"):
        load_strategy_state(build(algorithm="fedgen", **{"fedgen.hidden-dim": 9}), saved)
    del saved["FedGen/trained"]
    with pytest.raises(StrategyStateError, match="FedGen does not fit"):
        load_strategy_state(build(algorithm="fedgen"), saved)
    with pytest.raises(StrategyStateError, match="keeps no state"):
        load_strategy_state(FedAvg(), {"FedAvg/x": torch.tensor(1)})

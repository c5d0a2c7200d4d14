"""The server's sum of what clients keep for themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flwr.app import Message, RecordDict
from torch import Tensor

from common import records
from server_app.strategies.mirrored import MirroredSum

Reply = Callable[..., Message]


class Clients:
    """Whoever is here, with so many examples; node ids are 1, 2, ... in alphabetical order."""

    def __init__(self, **examples: int) -> None:
        self.examples = examples

    def name_of(self, node_id: int) -> str:
        return "abcdef"[node_id - 1]

    def label_counts(self) -> dict[str, list[int]]:
        return {name: [count, 0] for name, count in self.examples.items()}


def add(own: MirroredSum, server_round: int, change: float, *replies: Message) -> None:
    for each in own.weighted(replies):
        own.add(server_round, each, {"w": torch.tensor([change])})


def mean(own: MirroredSum) -> float:
    return own.mean()["w"].item()


STATE: dict[str, Tensor] = {"w": torch.zeros(1)}


@pytest.mark.parametrize(("uniform", "expected"), [(True, 6.0 / 3), (False, 10 * 6.0 / 60)])
def test_it_is_the_mean_over_all_clients_and_those_not_asked_yet_count_with_zero(
    reply: Reply, uniform: bool, expected: float
) -> None:
    own = MirroredSum(Clients(a=10, b=20, c=30), uniform=uniform)
    add(own, 1, 6.0, reply(1, STATE, 10))
    assert mean(own) == pytest.approx(expected)


def test_one_that_joins_later_makes_the_mean_smaller_and_one_that_leaves_stays_in_it(
    reply: Reply,
) -> None:
    clients = Clients(a=1, b=1)
    own = MirroredSum(clients, uniform=True)
    add(own, 1, 6.0, reply(1, STATE, 1), reply(2, STATE, 1))
    assert mean(own) == 6.0
    clients.examples["c"] = 1
    assert mean(own) == 4.0  # 12 / 3
    del clients.examples["a"]
    assert mean(own) == 4.0


def test_a_clients_weight_stays_that_of_its_first_reply(reply: Reply) -> None:
    own = MirroredSum(Clients(a=10, b=10), uniform=False)
    add(own, 1, 1.0, reply(1, STATE, 10))
    add(own, 2, 1.0, reply(1, STATE, 30))  # its data have grown
    assert mean(own) == pytest.approx((10 * 1 + 10 * 1) / 20)


def test_every_instruction_says_which_round_of_its_client_counted_last(reply: Reply) -> None:
    own = MirroredSum(Clients(a=1, b=1, c=1), uniform=True)
    add(own, 4, 1.0, reply(1, STATE, 1))
    add(own, 5, 1.0, reply(2, STATE, 1))
    shared = RecordDict({records.ARRAYS: records.to_arrays(STATE)})
    sent = own.addressed(
        Message(shared, dst_node_id=node, message_type=records.TRAIN) for node in (1, 2, 3)
    )
    counted = [m.content.config_records[records.COUNTED][records.ROUND] for m in sent]
    assert counted == [4, 5, 0]
    assert len({id(m.content[records.ARRAYS]) for m in sent}) == 1, "the model stays shared"


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_change_that_is_not_finite_does_not_count(
    reply: Reply, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    own = MirroredSum(Clients(a=1, b=1), uniform=True)
    add(own, 1, 6.0, reply(1, STATE, 1))
    add(own, 2, value, reply(1, STATE, 1))
    assert mean(own) == 3.0
    message = Message(RecordDict(), dst_node_id=1, message_type=records.TRAIN)
    (sent,) = own.addressed([message])
    assert sent.content.config_records[records.COUNTED][records.ROUND] == 1
    assert "the correction of a follows from its reply as infinity" in caplog.text


def test_saved_and_loaded_it_goes_on_with_the_same_numbers(reply: Reply) -> None:
    clients = Clients(a=3, b=4)
    one, other = (MirroredSum(clients, uniform=False) for _ in range(2))
    add(one, 1, 0.1, reply(1, STATE, 3))
    other.load_state_dict(one.state_dict())
    for own in (one, other):
        add(own, 2, 0.7, reply(1, STATE, 3), reply(2, STATE, 4))
    assert torch.equal(one.mean()["w"], other.mean()["w"])
    with pytest.raises(ValueError, match="'x' is no part of it"):
        one.load_state_dict({"x": torch.zeros(1)})

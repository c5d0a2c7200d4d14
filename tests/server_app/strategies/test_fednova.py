"""FedNova against the paper's update, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch
from flwr.app import ConfigRecord, Message, MetricRecord
from torch import nn

from common import records
from common.models import SplitModel
from server_app.strategies import build_strategy
from server_app.strategies.fednova import normaliser, step_length
from tests.server_app.strategies.test_build_strategy import CPU, Clients
from tests.settings import make_settings

Reply = Callable[..., Message]


def test_a_plain_step_counts_one() -> None:
    assert normaliser(7, 0.0) == 7


def test_with_momentum_the_first_gradient_counts_for_all_steps_after_it() -> None:
    # rho 1/2, three steps: 1 + 1/2 + 1/4 of the first gradient, 1 + 1/2 of the second, 1.
    assert normaliser(3, 0.5) == pytest.approx(1.75 + 1.5 + 1)


def test_equal_steps_lead_to_fedavgs_model() -> None:
    assert step_length([3, 9, 1], [4, 4, 4]) == pytest.approx(1)


class _Grid:
    def get_node_ids(self) -> list[int]:
        return [0, 1]


def with_steps(reply: Message, steps: int) -> Message:
    cast(MetricRecord, reply.content[records.METRICS])[records.STEPS] = float(steps)
    return reply


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_the_new_model_is_the_papers(weighting: str, reply: Reply) -> None:
    settings = make_settings(
        **{
            "algorithm": "fednova",
            "server.weighting": weighting,
            "train.momentum": 0.0,
        }
    )
    model = SplitModel(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), 1, 1)
    strategy = build_strategy(settings, model, Clients(), CPU)
    encoder, predictor = model.state_dict()
    received = {encoder: torch.tensor([[10.0]]), predictor: torch.tensor([[0.0]])}
    strategy.configure_train(1, records.to_arrays(received), ConfigRecord(), _Grid())  # type: ignore[arg-type]
    one = {encoder: torch.tensor([[8.0]]), predictor: torch.tensor([[1.0]])}
    two = {encoder: torch.tensor([[2.0]]), predictor: torch.tensor([[4.0]])}
    replies = [with_steps(reply(0, one, 30), 2), with_steps(reply(1, two, 10), 8)]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert arrays is not None
    found = records.to_tensors(arrays)
    p = (0.5, 0.5) if weighting == "uniform" else (0.75, 0.25)
    effective = p[0] * 2 + p[1] * 8
    # d_k = (theta - theta_k) / a_k: of the encoder (10 - 8) / 2 and (10 - 2) / 8.
    assert found[encoder].item() == pytest.approx(10 - effective * (p[0] * 1 + p[1] * 1))
    assert found[predictor].item() == pytest.approx(effective * (p[0] * 0.5 + p[1] * 0.5))


def test_steps_that_the_examples_can_not_make_are_refused(reply: Reply) -> None:
    settings = make_settings(
        **{"algorithm": "fednova", "train.batch-size": 32, "train.local-epochs": 2}
    )
    strategy = build_strategy(
        settings, SplitModel(nn.Linear(1, 1), nn.Linear(1, 1), 1, 1), Clients(), CPU
    )
    good, bad = (with_steps(reply(0, {}, 64), steps) for steps in (4, 1))
    assert strategy.why_not("0", good) == ""  # type: ignore[attr-defined]
    assert "steps" in strategy.why_not("0", bad)  # type: ignore[attr-defined]

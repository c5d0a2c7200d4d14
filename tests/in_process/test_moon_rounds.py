"""MOON through both apps, against the paper's equations and the schedules' in a bare loop."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from common.config import Settings
from common.data import data_spec, load_client_data
from common.models import SplitModel, build_model
from common.node import Node
from tests.in_process.grid import simulated
from tests.in_process.test_corrections import CLIENTS, SHORT, batches, final, run
from tests.settings import make_settings

ROUNDS = 3
MU = [0.5, 1.25, 2.0]
"""On a line from 0.5 to 2 in two rounds."""
TAU = [1.0, 0.625, 0.25]
RATE = [0.1 / 2, 0.1, 0.1 * (1 - 0.5 * (1 - math.cos(math.pi / 2)) / 2)]
"""A warm-up of one round, then half a cosine from 0.1 to 0.05 in two."""
NUMBERS: dict[str, Any] = {
    "algorithm": "moon",
    "moon.mu-start": 0.5,
    "moon.mu": 2.0,
    "moon.mu-rounds": 2,
    "moon.temperature-start": 1.0,
    "moon.temperature": 0.25,
    "moon.temperature-rounds": 2,
    "moon.ema-decay": 0.5,
    "moon.buffer-size": 2,
    "train.learning-rate": 0.1,
    "train.learning-rate-decay": 0.5,
    "train.learning-rate-schedule": "cosine",
    "train.learning-rate-rounds": 2,
    "train.learning-rate-warm-up": 1,
    "data.alpha": 0.5,
}


def negatives(previous: str, own: list[SplitModel]) -> list[SplitModel]:
    """Return what the encoder is to move away from: the last two models, or their average."""
    if previous == "models" or not own:
        return own[-2:]
    weights = [0.5 ** (len(own) - 1 - index) for index in range(len(own))]
    average = copy.deepcopy(own[-1])
    for name, parameter in average.named_parameters():
        parts = [w * m.get_parameter(name).data for w, m in zip(weights, own, strict=True)]
        parameter.data = torch.stack(parts).sum(dim=0) / sum(weights)
    return [average]


def loss_of(
    net: SplitModel, away: list[SplitModel], received: SplitModel, batch: Any, r: int
) -> Tensor:
    z = net.encoder(batch.x)
    loss = F.cross_entropy(net.predictor(z), batch.y)
    if not away:
        return loss
    near, *far = (
        torch.exp(F.cosine_similarity(z, each.encoder(batch.x).detach()) / TAU[r])
        for each in (received, *away)
    )
    return loss - MU[r] * torch.log(near / (near + torch.stack(far).sum(dim=0))).mean()


def reference(settings: Settings, nodes: list[Node]) -> list[Tensor]:
    model = build_model(settings.model, data_spec(settings.data), settings.seed)
    sizes = [len(load_client_data(settings, node).train) for node in nodes]
    own: list[list[SplitModel]] = [[] for _ in nodes]
    for r in range(ROUNDS):
        for k, node in enumerate(nodes):
            net, away = copy.deepcopy(model), negatives(settings.moon.previous, own[k])
            w = list(net.parameters())
            for batch in batches(settings, node, r + 1):
                grads = torch.autograd.grad(loss_of(net, away, model, batch, r), w)
                for p, g in zip(w, grads, strict=True):
                    p.data -= RATE[r] * g
            own[k].append(net)
        for name, parameter in model.named_parameters():
            locals_ = [each[-1].get_parameter(name).data for each in own]
            parts = [n * p for n, p in zip(sizes, locals_, strict=True)]
            parameter.data = torch.stack(parts).sum(dim=0) / sum(sizes)
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("previous", ["models", "ema"])
def test_three_rounds_are_the_papers_equations_with_the_numbers_of_each_round(
    tmp_path: Path, previous: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = {**NUMBERS, "moon.previous": previous}
    found = final(run(tmp_path, **overrides))
    monkeypatch.setenv("MOONFLOWER_HOME", str(tmp_path / "moonflower"))
    nodes = [Node.from_config(config) for config in simulated(CLIENTS)]
    expected = reference(make_settings(**SHORT | overrides), nodes)
    for tensor, wanted in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(tensor, wanted, rtol=0, atol=1e-6)
    # What the term adds is far above the tolerance.
    plain = final(run(tmp_path / "fedavg", **{**overrides, "algorithm": "fedavg"}))
    assert max(float((found[n] - plain[n]).abs().max()) for n in found) > 1e-3

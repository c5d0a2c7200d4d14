"""The local optimiser gives the bits of PyTorch's, without the cost of making one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from client_app.optimizer import Adam, Optimizer, build_optimizer
from tests.settings import ROOT, make_settings

RATE = 0.05


def trained(make: Callable[[nn.Module], Any]) -> dict[str, torch.Tensor]:
    """Return a network after five steps on fixed data; its last layer never has a gradient."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), nn.Linear(3, 2))
    x, y = torch.randn(8, 5), torch.randint(3, (8,))
    optimizer = make(network)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network[:3](x), y).backward()
        optimizer.step()
    return network.state_dict()


def built(**settings: object) -> Callable[[nn.Module], Optimizer]:
    """Return what makes the local optimiser of these settings."""
    return lambda network: build_optimizer(network, make_settings(**settings).train, RATE)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_sgd_gives_the_bits_of_pytorchs(momentum: float, weight_decay: float) -> None:
    settings = {"train.momentum": momentum, "train.weight-decay": weight_decay}
    found = trained(built(**settings, **{"train.optimizer": "sgd"}))
    options = {"lr": RATE, "momentum": momentum, "weight_decay": weight_decay}
    expected = trained(lambda net: torch.optim.SGD(net.parameters(), fused=True, **options))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adam_gives_the_bits_of_pytorchs(weight_decay: float) -> None:
    settings = {"train.optimizer": "adam", "train.weight-decay": weight_decay}
    options = {"lr": RATE, "weight_decay": weight_decay}
    expected = trained(lambda net: torch.optim.Adam(net.parameters(), fused=True, **options))
    found = trained(built(**settings))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_adams_first_step_is_the_learning_rate_against_the_gradients_sign() -> None:
    # m / (1 - beta1) = g and v / (1 - beta2) = g^2: the step is lr g / (|g| + eps).
    weight = torch.tensor([1.0, 1.0, 1.0])
    weight.grad = torch.tensor([3.0, -0.5, 0.0])
    Adam([weight], 0.1, 0.0).step()
    torch.testing.assert_close(weight, torch.tensor([0.9, 1.1, 1.0]))


def test_what_is_frozen_is_not_touched_by_weight_decay() -> None:
    network = nn.Linear(2, 2)
    network.bias.requires_grad_(False)
    network.weight.grad, network.bias.grad = torch.ones(2, 2), torch.ones(2)
    before = network.bias.clone()
    built(**{"train.weight-decay": 0.5})(network).step()
    assert torch.equal(network.bias, before)


def test_training_does_not_import_pytorchs_compiler() -> None:
    code = """
import sys, torch
from torch import nn
from client_app.optimizer import Adam, Sgd
from client_app.training import train
from common.data import Batch
from common.models import SplitModel
from common.tasks.classification import Classification
batch = Batch(torch.ones(2, 2), torch.tensor([0, 1]), torch.arange(2))
for optimizer in (Sgd, Adam):
    model = SplitModel(nn.Flatten(), nn.Linear(2, 2), 2, 2)
    rest = (0.9, 0.0) if optimizer is Sgd else (0.0,)
    train(Classification(2), model, [batch], [], optimizer(model.parameters(), 0.1, *rest))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0

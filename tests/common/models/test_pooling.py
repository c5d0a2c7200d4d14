"""Max-pooling of our own has the bits of PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.pooling import MaxPool2x2

RANDOM = torch.Generator().manual_seed(0)
INPUTS = {
    "different": torch.randn(3, 2, 6, 8, generator=RANDOM),
    "ties": torch.randint(-1, 2, (20, 3, 6, 6), generator=RANDOM).float(),
    "constant": torch.ones(2, 1, 4, 4),
    "odd": torch.randn(2, 3, 7, 5, generator=RANDOM),
    "one-window": torch.randn(4, 1, 2, 2, generator=RANDOM),
    "infinite": torch.full((1, 1, 2, 4), -torch.inf),
    "bfloat16": torch.randn(3, 2, 6, 8, generator=RANDOM).bfloat16(),
    "channels-last": torch.randn(3, 4, 6, 6, generator=RANDOM).to(
        memory_format=torch.channels_last
    ),
}


def same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_values_and_gradients_are_pytorchs_to_the_bit(name: str) -> None:
    results = []
    for pool in (MaxPool2x2(), torch.nn.MaxPool2d(2)):
        x = INPUTS[name].clone().requires_grad_()
        pooled = pool(x)
        weights = torch.arange(pooled.numel()).view(pooled.shape).to(pooled.dtype) + 1
        (grad,) = torch.autograd.grad(pooled, x, weights)
        results.append((pooled, grad))
    (ours, our_grad), (theirs, their_grad) = results
    assert same(ours, theirs)
    assert same(our_grad, their_grad)


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_without_gradient_too(name: str) -> None:
    with torch.no_grad():
        assert same(MaxPool2x2()(INPUTS[name]), F.max_pool2d(INPUTS[name], 2))


def test_a_nan_is_the_maximum() -> None:
    x = torch.tensor([[[[1.0, torch.nan], [2.0, 3.0]]]])
    assert MaxPool2x2()(x).isnan().all()
    assert MaxPool2x2()(x.requires_grad_()).isnan().all()

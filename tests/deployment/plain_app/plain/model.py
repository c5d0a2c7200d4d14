"""The network: that of Moonflower's ``mlp`` for digits."""

from __future__ import annotations

from torch import nn


def make_model() -> nn.Module:
    """Return an untrained network for images of 8x8 pixels."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.Linear(32, 10),
    )

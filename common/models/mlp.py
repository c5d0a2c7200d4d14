"""``mlp``: a small network without normalisation, for tables and small images such as digits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import nn

from common.config import ModelSettings
from common.models.layers import finish
from common.models.split import SplitModel

if TYPE_CHECKING:
    from common.data import DataSpec

HIDDEN = 64
LATENT = 32


def mlp(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return flatten, 64 and 64 hidden units with ReLU, and a linear ``z`` of 32.

    ``z`` is linear, as in FedGen's model, so that a generator with a linear output can match it.
    """
    features = nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(spec.kind.shape), HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, LATENT),
    )
    return finish(features, LATENT, settings, spec)

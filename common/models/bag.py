"""``text-bag``: the mean of the words' embeddings, whatever their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from common.config import ModelSettings
from common.models.layers import finish
from common.models.split import SplitModel
from common.models.token_layers import embedding, is_token, masked_mean

if TYPE_CHECKING:
    from common.data import DataSpec
    from common.data.kinds import Tokens

WIDTH = 128
LATENT = 64


def text_bag(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return embeddings of 128, their mean, 128 hidden units with ReLU, and a linear ``z`` of 64.

    After fastText (Joulin et al., EACL 2017, arXiv:1607.01759), with a hidden layer.
    """
    features = nn.Sequential(
        Bag(cast("Tokens", spec.kind).vocabulary),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, LATENT),
    )
    return finish(features, LATENT, settings, spec)


class Bag(nn.Module):
    """Ids ``[batch, length]`` to the mean of their embeddings, float ``[batch, 128]``."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, WIDTH, 0.1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the mean over the tokens."""
        return masked_mean(self.embedding(ids), is_token(ids))

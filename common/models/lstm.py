"""``lstm``: a bidirectional LSTM over the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from common.config import ModelSettings
from common.models.layers import finish
from common.models.split import SplitModel
from common.models.token_layers import embedding, is_token, masked_maximum, shortened

if TYPE_CHECKING:
    from common.data import DataSpec
    from common.data.kinds import Tokens

WIDTH = 128
UNITS = 128
DROPOUT = 0.5


def lstm(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return embeddings of 128, an LSTM of 128 units each way, and their maximum over time.

    ``z`` are these 256 numbers (Conneau et al., EMNLP 2017, arXiv:1705.02364: BiLSTM-max). Dropout
    of 0.5 before and after the LSTM.
    """
    return finish(Lstm(cast("Tokens", spec.kind).vocabulary), 2 * UNITS, settings, spec)


class Lstm(nn.Module):
    """Ids ``[batch, length]`` to float ``[batch, 256]``.

    Each direction is an LSTM of its own, the second over the tokens backwards. Padding stays at the
    end either way, so no token sees any. Packed sequences would do the same, but can't be exported
    and wait for the device.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, WIDTH, 1.0)
        self.dropout = nn.Dropout(DROPOUT)
        self.forwards = nn.LSTM(WIDTH, UNITS, batch_first=True)
        self.backwards = nn.LSTM(WIDTH, UNITS, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the maximum over time of both directions."""
        ids = shortened(ids)
        mask = is_token(ids)
        x = self.dropout(self.embedding(ids))
        position = torch.arange(ids.shape[1], device=ids.device)
        last = mask.sum(dim=1, keepdim=True) - 1
        # Padding keeps its place: only tokens change theirs.
        mirrored = torch.where(mask, last - position, position).unsqueeze(2)
        reversed_x = x.gather(1, mirrored.expand_as(x))
        # The maximum over time does not ask for their order, so nothing is turned back.
        found = [
            masked_maximum(self.forwards(x)[0], mask),
            masked_maximum(self.backwards(reversed_x)[0], mask),
        ]
        return cast(Tensor, self.dropout(torch.cat(found, dim=1)))

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


CHARACTER_WIDTH = 32
CHARACTER_UNITS = 128


def char_lstm(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return embeddings of 32 and one LSTM of 128 units; ``z`` is its last output.

    For what comes next: the maximum over time of :func:`lstm` would forget what came last. LEAF's
    (Caldas et al., 2018, arXiv:1812.01097) has embeddings of 8 and two layers of 256, at ten times
    the cost.
    """
    features = LastOutput(cast("Tokens", spec.kind).vocabulary)
    return finish(features, CHARACTER_UNITS, settings, spec)


class LastOutput(nn.Module):
    """Ids ``[batch, length]`` to the LSTM's output at the last token, float ``[batch, 128]``."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, CHARACTER_WIDTH, 1.0)
        self.forwards = nn.LSTM(CHARACTER_WIDTH, CHARACTER_UNITS, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the output at the last token; the padding behind it is not looked at."""
        ids = shortened(ids)
        last = (is_token(ids).sum(dim=1) - 1).clamp(min=0)
        found = self.forwards(self.embedding(ids))[0]
        place = last.view(-1, 1, 1).expand(-1, 1, found.shape[2])
        return cast(Tensor, found.gather(1, place).squeeze(1))

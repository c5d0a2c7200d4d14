"""``text-transformer``: BERT's shape, small."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from common.config import ModelSettings
from common.models.layers import finish
from common.models.split import SplitModel
from common.models.token_layers import embedding, is_token, masked_mean, shortened

if TYPE_CHECKING:
    from common.data import DataSpec
    from common.data.kinds import Tokens

WIDTH = 128
HEADS = 4
LAYERS = 2
HIDDEN = 256
DROPOUT = 0.1


def text_transformer(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return an encoder of 2 layers, width 128, 4 heads and 256 hidden units with GELU.

    As BERT (Devlin et al., NAACL 2019, arXiv:1810.04805): learned positions, LayerNorm, dropout of
    0.1. Unlike it, LayerNorm comes before attention, which learns from scratch without a warm-up
    (Xiong et al., ICML 2020, arXiv:2002.04745), and ``z`` is the mean over the tokens: hashed words
    have no [CLS].
    """
    kind = cast("Tokens", spec.kind)
    return finish(TextTransformer(kind.vocabulary, kind.length), WIDTH, settings, spec)


class TextTransformer(nn.Module):
    """Ids ``[batch, length]`` to float ``[batch, 128]``."""

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, WIDTH, 0.1)
        self.positions = nn.Parameter(torch.empty(length, WIDTH).normal_(std=0.02))
        self.dropout = nn.Dropout(DROPOUT)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, HIDDEN, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        # Nested tensors would be another computation in eval mode.
        self.layers = nn.TransformerEncoder(
            layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Return the mean over the tokens of what the last layer makes of them."""
        ids = shortened(ids)
        mask = is_token(ids)
        # A text without a token attends to its first padding: over nothing there is no softmax.
        ignored = ~mask
        ignored[:, 0] = False
        x = self.dropout(self.embedding(ids) + self.positions[: ids.shape[1]])
        return masked_mean(self.layers(x, src_key_padding_mask=ignored), mask)

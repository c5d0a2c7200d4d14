"""``tab-transformer``: attention over the columns of a table.

FT-Transformer (Gorishniy, Rubachev, Khrulkov, Babenko, "Revisiting Deep Learning Models for Tabular
Data", NeurIPS 2021) rather than TabTransformer (Huang et al., 2020): that one sends only categories
through attention, and a table of numbers alone through an MLP. Normalised by LayerNorm, which has
no running statistics that sites would disagree about, and without dropout: nothing is drawn while
training.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from common.config import ModelSettings
from common.models.layers import finish
from common.models.split import SplitModel

if TYPE_CHECKING:
    from common.data import DataSpec
    from common.data.kinds import Table

WIDTH = 32
HEADS = 4
LAYERS = 2


class ColumnTokens(nn.Module):
    """A token for each column, and one more, first, that gathers what all say.

    A number is ``value * weight + bias``, and ``missing`` is added where it is; a category has a
    vector of its own, and a missing one the bias alone.

    Parameters
    ----------
    numeric : int
    indicators : bool
    categories : tuple of int
        As in :class:`common.data.kinds.Table`.
    """

    def __init__(self, numeric: int, indicators: bool, categories: tuple[int, ...]) -> None:
        super().__init__()
        self._sizes = (numeric, numeric * indicators, sum(categories))
        # Which column each category belongs to: what follows adds up the right vectors.
        columns = torch.arange(len(categories))
        owner = columns.repeat_interleave(torch.tensor(categories, dtype=torch.int64))
        self.register_buffer("owner", (owner == columns[:, None]).float(), persistent=False)
        self.numbers = _vectors(numeric)
        self.missing = _vectors(numeric * indicators)
        self.categories = _vectors(sum(categories))
        self.bias = _vectors(numeric + len(categories))
        self.first = _vectors(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return float ``[batch, 1 + columns, WIDTH]`` of ``[batch, *Table.shape]``."""
        values, missing, known = x.split(self._sizes, dim=1)
        numbers = values[:, :, None] * self.numbers
        if self._sizes[1]:
            numbers = numbers + missing[:, :, None] * self.missing
        owner = cast(Tensor, self.owner)
        chosen = (owner * known[:, None, :]) @ self.categories
        columns = torch.cat([numbers, chosen], dim=1) + self.bias
        # Not len(x): as a plain int it would be the batch size of an exported model, for ever.
        return torch.cat([self.first.expand(x.shape[0], 1, WIDTH), columns], dim=1)


class TableEncoder(nn.Module):
    """Tokens of columns through pre-norm attention, and what the first one has gathered."""

    def __init__(self, tokens: ColumnTokens) -> None:
        super().__init__()
        self.tokens = tokens
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            HEADS,
            dim_feedforward=2 * WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return a linear ``z``, as a generator with a linear output can match it."""
        z: Tensor = self.last(self.layers(self.tokens(x))[:, 0])
        return z


def tab_transformer(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return two layers of attention over the columns, 32 wide with 4 heads, and a ``z`` of 32."""
    table = cast("Table", spec.kind)
    tokens = ColumnTokens(table.numeric, table.indicators, table.categories)
    return finish(TableEncoder(tokens), WIDTH, settings, spec)


def _vectors(count: int) -> nn.Parameter:
    bound = 1 / math.sqrt(WIDTH)
    return nn.Parameter(torch.empty(count, WIDTH).uniform_(-bound, bound))

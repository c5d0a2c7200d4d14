"""What the models of texts share: which tokens count, and how they become one vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_token(ids: Tensor) -> Tensor:
    """Return which of ``ids`` ``[batch, length]`` are tokens, and not padding (0)."""
    return ids != 0


def shortened(ids: Tensor) -> Tensor:
    """Return ``ids`` without the columns that are padding in every text, but with one at least.

    What a model makes of a text does not depend on it, beyond rounding: it is only faster. In an
    exported model all columns stay, since how many there are would depend on values.
    """
    if torch.compiler.is_exporting():
        return ids
    longest = int(is_token(ids).sum(dim=1).max()) if len(ids) else 0
    return ids[:, : max(longest, 1)]


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens of each text, zeros where there are none.

    Parameters
    ----------
    x : Tensor
        Float ``[batch, length, width]``.
    mask : Tensor
        Bool ``[batch, length]``.
    """
    weights = mask.unsqueeze(2).to(x.dtype)
    return (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def masked_maximum(x: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum over the tokens of each text, zeros where there are none.

    Parameters are those of :func:`masked_mean`.
    """
    lowest = torch.finfo(x.dtype).min
    found = x.masked_fill(~mask.unsqueeze(2), lowest).amax(dim=1)
    return found.masked_fill(~mask.any(dim=1, keepdim=True), 0)


def embedding(vocabulary: int, width: int, deviation: float) -> nn.Embedding:
    """Return an embedding whose padding is zero and stays so, its other numbers N(0, deviation)."""
    made = nn.Embedding(vocabulary, width, padding_idx=0)
    with torch.no_grad():
        made.weight.normal_(std=deviation)
        made.weight[0] = 0
    return made

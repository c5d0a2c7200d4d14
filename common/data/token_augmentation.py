"""Training-time augmentation of texts, on the ids of their tokens, batched and on the device.

After Wei and Zou, "EDA", EMNLP 2019 (arXiv:1901.11196), whose random deletion and swap are these;
its synonyms would need a language. Every text keeps one token at least.
"""

from __future__ import annotations

import torch
from torch import Tensor

DROPPED = 0.1
"""The probability that a token is dropped (alpha in EDA)."""

LONGEST_SPAN = 0.3
"""The part of a text that may be deleted in one piece."""

SWAPPED = 0.1
"""The probability that a pair of neighbours changes places (alpha in EDA)."""


def token_dropout(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return every text without a random tenth of its tokens.

    Parameters
    ----------
    x : Tensor
        Whole numbers ``[batch, length]``: ids, padded at the end with 0.
    generator : torch.Generator
        On the CPU, so that every device drops the same tokens.

    Returns
    -------
    Tensor
        Of the same shape: what is left, closed up and padded at the end.
    """
    kept = torch.rand(x.shape, generator=generator) >= DROPPED
    return _closed_up(x, kept.to(x.device))


def span_deletion(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return every text without a random span of up to three tenths of its tokens.

    Parameters and result are those of :func:`token_dropout`.
    """
    length, place = torch.rand((2, len(x), 1), generator=generator).to(x.device)
    count = (x != 0).sum(dim=1, keepdim=True)
    span = (length * (LONGEST_SPAN * count + 1)).long()
    begin = (place * (count - span + 1)).long()
    position = torch.arange(x.shape[1], device=x.device)
    return _closed_up(x, (position < begin) | (position >= begin + span))


def neighbour_swap(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return every text with a tenth of its pairs of neighbours swapped.

    Pairs are disjoint: the first and second token, the third and fourth and so on, or, for half of
    the texts, the second and third and so on. Parameters and result are those of
    :func:`token_dropout`.
    """
    batch, length = x.shape
    shift = torch.randint(0, 2, (batch, 1), generator=generator).to(x.device)
    drawn = (torch.rand((batch, length), generator=generator) < SWAPPED).to(x.device)
    position = torch.arange(length, device=x.device).expand(batch, length)
    first = (position - shift) % 2 == 0
    last = (x != 0).sum(dim=1, keepdim=True) - 1
    # What was drawn for the first of a pair holds for both.
    moved_on = drawn & first & (position < last)
    moved_back = moved_on.roll(1, dims=1)
    moved_back[:, 0] = False
    return x.gather(1, position + moved_on.long() - moved_back.long())


def _closed_up(x: Tensor, kept: Tensor) -> Tensor:
    """Return ``x`` with only the ``kept`` tokens, or the first one where none would be left."""
    kept = kept & (x != 0)
    kept[:, 0] |= ~kept.any(dim=1)
    order = torch.argsort((~kept).to(torch.uint8), dim=1, stable=True)
    return (x * kept).gather(1, order)

"""Tokens: what is refused, and what augmentations do to ids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from common.data import DataError
from common.data.kinds import Tokens
from common.data.kinds.tokens import AUGMENTATIONS
from common.data.token_augmentation import (
    DROPPED,
    SWAPPED,
    neighbour_swap,
    span_deletion,
    token_dropout,
)

KIND = Tokens(4, 10, "words")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def texts(lengths: list[int], length: int) -> Tensor:
    """Return texts whose ids are 1, 2, 3, ..."""
    position = torch.arange(length)
    count = torch.tensor(lengths)[:, None]
    return torch.where(position < count, position + 1, 0).int()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([1, 10, 0, 0], r"clinic: 1 ids lie outside 0 to 9, the first is 10 at row 1, position 1"),
        ([1, -1, 0, 0], "the first is -1 at row 1"),
        ([0, 0, 0, 0], "1 texts have no token, only padding"),
        ([1, 0, 2, 0], "1 texts have a token after padding"),
    ],
)
def test_what_is_no_text_is_named_with_its_place(row: list[int], reason: str) -> None:
    KIND.check(np.array([[1, 2, 3, 9]]), "clinic")
    with pytest.raises(DataError, match=reason):
        KIND.check(np.array([[1, 2, 3, 9], row]), "clinic")


def test_augmentations_of_images_are_refused() -> None:
    assert KIND.augmentation("none") is None
    with pytest.raises(DataError, match="'crop-flip' is not for texts: allowed are 'none', 'token"):
        KIND.augmentation("crop-flip")


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmented_texts_are_texts_and_depend_on_the_generator_only(name: str) -> None:
    augment = KIND.augmentation(name)
    assert augment is not None
    whole = texts([1, 2, 5, 20] * 50, 20)
    once, again, other = (augment(whole, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert once.dtype == whole.dtype
    Tokens(20, 21).check(once.numpy(), name)
    assert torch.equal(whole, texts([1, 2, 5, 20] * 50, 20)), "the batch itself stays"
    assert torch.equal(once[::4], whole[::4]), "a text of one token has nothing to lose"


def test_token_dropout_leaves_the_rest_in_order_and_drops_a_tenth() -> None:
    whole = texts([50] * 400, 50)
    found = token_dropout(whole, generator())
    kept = found != 0
    assert all(bool((row[row > 0].diff() > 0).all()) for row in found)
    # 20,000 tokens: the share dropped has a standard deviation of 0.002.
    assert abs(1 - kept.float().mean().item() - DROPPED) < 0.01


def test_span_deletion_takes_out_one_piece_of_up_to_three_tenths() -> None:
    found = span_deletion(texts([20] * 500, 20), generator())
    gone = 20 - (found != 0).sum(dim=1)
    assert set(gone.tolist()) == set(range(7))  # 0.3 * 20 = 6
    for row in found:
        steps = row[row > 0].diff()
        assert int((steps > 1).sum()) <= 1, "one gap at most"


def test_neighbour_swap_keeps_all_tokens_and_swaps_a_tenth_of_the_pairs() -> None:
    whole = texts([20, 7] * 500, 20)
    found = neighbour_swap(whole, generator())
    assert torch.equal(found.sort(dim=1).values, whole.sort(dim=1).values)
    moved = found != whole
    assert bool(((found - whole).abs() <= 1).all())
    # 1,000 pairs of 20 tokens make 500 * 9.75 pairs, 7 tokens 500 * 3; two tokens move in each.
    pairs = 500 * (9.5 + 10) / 2 + 500 * 3
    assert abs(moved.sum().item() / 2 / pairs - SWAPPED) < 0.02

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from common.data import DataError
from common.data.augmentation import crop_flip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def every_crop(image: torch.Tensor) -> set[bytes]:
    """All results that reflection padding, crop and flip can give for one image."""
    height, width = image.shape[1:]
    padded = pad(image[None], (4, 4, 4, 4), mode="reflect")[0]
    crops = set()
    for top in range(9):
        for left in range(9):
            crop = padded[:, top : top + height, left : left + width]
            crops.add(crop.contiguous().numpy().tobytes())
            crops.add(crop.flip(2).contiguous().numpy().tobytes())
    return crops


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 7), (20, 17)])
def test_every_result_is_a_crop_of_the_reflection_padded_image(height: int, width: int) -> None:
    image = torch.rand(3, height, width, generator=generator(1))
    possible = every_crop(image)
    if min(height, width) > 16:  # in smaller images some crops are their neighbours' mirror images
        assert len(possible) == 9 * 9 * 2
    images = crop_flip(image.expand(4000, -1, -1, -1), generator())
    seen = {result.numpy().tobytes() for result in images}
    # 4,000 draws miss one of 162 results with probability 162 * exp(-4000 / 162), about 3e-9.
    assert seen == possible


def test_each_image_keeps_its_place_in_the_batch() -> None:
    images = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 2, 8, 8)
    assert torch.equal(crop_flip(images, generator()), images)


def test_one_seed_gives_the_same_batch_and_the_next_batch_differs() -> None:
    images = torch.rand(16, 1, 8, 8, generator=generator(1))
    source = generator(5)
    first, second = crop_flip(images, source), crop_flip(images, source)
    assert torch.equal(first, crop_flip(images, generator(5)))
    assert not torch.equal(first, second)


def test_images_too_small_to_reflect_are_refused() -> None:
    with pytest.raises(DataError, match="at least 5x5, these are 8x4"):
        crop_flip(torch.zeros(1, 1, 8, 4), generator())

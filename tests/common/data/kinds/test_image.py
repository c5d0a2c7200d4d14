"""Images: augmentations by name."""

from __future__ import annotations

import pytest

from common.data import DataError
from common.data.augmentation import crop_flip
from common.data.kinds import Image


def image(size: int) -> Image:
    """Return grey images of this size."""
    return Image((1, size, size), (0.5,), (0.5,))


def test_an_augmentation_is_found_by_its_name() -> None:
    assert image(5).augmentation("none") is None
    assert image(5).augmentation("crop-flip") is crop_flip


def test_images_too_small_for_the_augmentation_are_refused_at_once() -> None:
    with pytest.raises(DataError, match=r"crop-flip.*these are 4x4"):
        image(4).augmentation("crop-flip")


def test_an_unknown_augmentation_is_refused() -> None:
    with pytest.raises(DataError, match="'mixup' is not for images: allowed are"):
        image(8).augmentation("mixup")

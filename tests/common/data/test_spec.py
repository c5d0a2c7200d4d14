from __future__ import annotations

import numpy as np
import pytest

from common.data import data_spec
from common.data.spec import white_level
from tests.settings import make_settings


@pytest.mark.parametrize(
    ("source", "shape", "classes"),
    [
        ("digits", (1, 8, 8), 10),
        ("mnist", (1, 28, 28), 10),
        ("fashion-mnist", (1, 28, 28), 10),
        ("cifar10", (3, 32, 32), 10),
        ("cifar100", (3, 32, 32), 100),
    ],
)
def test_built_in_sources_have_their_published_shape_and_classes(
    source: str, shape: tuple[int, int, int], classes: int
) -> None:
    spec = data_spec(make_settings(**{"data.source": source}).data)
    assert (spec.name, spec.shape, spec.num_classes) == (source, shape, classes)
    assert len(spec.mean) == len(spec.std) == shape[0]


def test_cifar10_is_normalised_as_in_moons_code() -> None:
    spec = data_spec(make_settings(**{"data.source": "cifar10"}).data)
    assert spec.mean == pytest.approx((0.49137, 0.48235, 0.44667), abs=1e-5)
    assert spec.std == pytest.approx((0.24706, 0.24353, 0.26157), abs=1e-5)


def test_site_data_have_the_shape_and_classes_of_the_settings() -> None:
    overrides = {"data.source": "npz", "data.image-shape": "3x20x24", "data.num-classes": 7}
    spec = data_spec(make_settings(**overrides).data)
    assert (spec.shape, spec.num_classes) == ((3, 20, 24), 7)
    assert spec.mean == spec.std == (0.5, 0.5, 0.5)


def test_white_is_255_for_bytes_16_for_digits_and_1_for_floats() -> None:
    byte, real = np.dtype(np.uint8), np.dtype(np.float32)
    assert white_level("mnist", byte) == 255
    assert white_level("digits", byte) == 16
    assert white_level("npz", real) == 1

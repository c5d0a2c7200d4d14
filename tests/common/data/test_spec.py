"""What data sets are to a model, and how that is written down and read again."""

from __future__ import annotations

from typing import Any

import pytest

from common.data import DataSpec, data_spec
from common.data.kinds import KINDS, Image, Table
from common.data.targets import ClassLabels, Numbers
from tests.settings import make_settings

BUILT_IN = {
    "digits": ((1, 8, 8), 10),
    "mnist": ((1, 28, 28), 10),
    "fashion-mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
}
IMAGES = {"data.source": "npz", "data.image-shape": "3x20x24", "data.num-classes": 7}
ROWS = {"data.source": "npz", "data.kind": "table", "data.features": 5}


def spec_of(**overrides: Any) -> DataSpec:
    """Return the spec of these settings."""
    return data_spec(make_settings(**overrides).data)


@pytest.mark.parametrize("source", BUILT_IN)
def test_built_in_sources_have_their_published_shape_and_classes(source: str) -> None:
    spec, (shape, classes) = spec_of(**{"data.source": source}), BUILT_IN[source]
    assert (spec.name, spec.kind.shape, spec.targets) == (source, shape, ClassLabels(classes))
    assert isinstance(spec.kind, Image)
    assert len(spec.kind.mean) == len(spec.kind.std) == shape[0]
    # Bytes of 0 to 255, but for the digits, which are 0 to 16.
    assert spec.kind.white == (16 if source == "digits" else 255)


def test_cifar10_is_normalised_as_in_moons_code() -> None:
    kind = spec_of(**{"data.source": "cifar10"}).kind
    assert isinstance(kind, Image)
    assert kind.mean == pytest.approx((0.49137, 0.48235, 0.44667), abs=1e-5)
    assert kind.std == pytest.approx((0.24706, 0.24353, 0.26157), abs=1e-5)


def test_own_data_are_what_the_settings_say() -> None:
    spec = spec_of(**IMAGES)
    assert spec.kind == Image((3, 20, 24), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert spec.targets == ClassLabels(7)
    numbers = spec_of(**ROWS, **{"task.name": "regression"})
    table = Table(5, indicators=True, standardise=True)
    assert (numbers.kind, numbers.targets) == (table, Numbers())
    plain = {"data.missing": "refuse", "data.standardise": False, "data.num-classes": 2}
    assert spec_of(**ROWS, **plain).kind == Table(5)
    assert spec_of(**ROWS, **{"data.num-classes": 2}).targets == ClassLabels(2)


@pytest.mark.parametrize("settings", [*({"data.source": name} for name in BUILT_IN), IMAGES, ROWS])
def test_what_is_written_down_is_read_again(settings: dict[str, Any]) -> None:
    spec = spec_of(**settings, **({"task.name": "regression"} if settings is ROWS else {}))
    assert DataSpec.of(spec.facts()) == spec
    assert spec.kind.name in KINDS


def test_what_moonflower_0_1_wrote_is_read_as_images() -> None:
    written = {"name": "digits", "shape": [1, 8, 8], "num-classes": 10}
    written |= {"mean": [0.305], "std": [0.376]}
    assert DataSpec.of(written) == spec_of(**{"data.source": "digits"})

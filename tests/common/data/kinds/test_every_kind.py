"""What holds for every kind of data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.data.kinds import KINDS
from tests.common.data.kinds.one_of_each import EXAMPLES

DTYPES = [(name, dtype) for name, kind in EXAMPLES.items() for dtype in kind.dtypes]


def test_every_kind_is_looked_at() -> None:
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_kind_is_read_from_its_facts(name: str) -> None:
    facts = {"name": "made up", **EXAMPLES[name].facts()}
    assert KINDS[name](facts) == EXAMPLES[name]


@pytest.mark.parametrize(("name", "dtype"), DTYPES)
def test_drawn_examples_are_of_the_kind_and_can_be_prepared(name: str, dtype: str) -> None:
    kind = EXAMPLES[name]
    drawn = kind.drawn(7, dtype, np.random.default_rng(0))
    assert (drawn.shape, str(drawn.dtype)) == ((7, *kind.stored_shape), dtype)
    assert np.array_equal(
        drawn, kind.drawn(7, dtype, np.random.default_rng(0)), equal_nan=dtype.startswith("float")
    )
    kind.check(drawn, "drawn")
    seen = kind.prepare(torch.from_numpy(drawn))
    assert len(seen) == 7
    assert seen.shape[1:] == kind.shape
    assert not seen.is_floating_point() or bool(seen.isfinite().all())

"""What all tasks have in common: sums that add up, and which way is better."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tasks.base import Headline, add

A = {"num-examples": 2, "loss": 0.1, "counts": [1, 2], "moments": [1e16, 0.5]}
B = {"num-examples": 3, "loss": 0.2, "counts": [3, 4], "moments": [1.0, 0.25]}
C = {"num-examples": 1, "loss": 0.3, "counts": [0, 1], "moments": [-1e16, 0.25]}


def test_sums_add_up_name_by_name_whole_numbers_staying_whole() -> None:
    total = add([A, B, C])
    # As exact numbers: 1e16 + 1 - 1e16 is 1, which two plain additions get wrong.
    assert total == {
        "num-examples": 6,
        "loss": pytest.approx(0.6),
        "counts": [4, 7],
        "moments": [1.0, 1.0],
    }
    assert isinstance(total["num-examples"], int)


def test_the_order_of_the_parts_changes_no_bit() -> None:
    first = add([A, B, C])
    assert all(add(parts) == first for parts in permutations([A, B, C]))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=8))
def test_a_sum_is_the_exact_one_whatever_the_order(values: list[float]) -> None:
    parts = [{"loss": value} for value in values]
    assert add(parts) == add(reversed(parts))


def test_a_score_is_better_in_the_direction_of_its_headline_only() -> None:
    assert Headline("accuracy").better(0.6, 0.5)
    assert not Headline("accuracy").better(0.5, 0.5)
    rmse = Headline("rmse", more_is_better=False)
    assert rmse.better(0.5, 0.6)
    assert not rmse.better(0.5, 0.5)
    assert not rmse.better(0.6, 0.5)

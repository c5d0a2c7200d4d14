"""What can be wrong with counts and changes, worked out by hand."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from common.data import Moments
from server_app.replies.checks import (
    inspect_arrays,
    scaled_update,
    update_norm,
    wrong_label_counts,
    wrong_moments,
)

F32 = np.float32


def packed(**arrays: Any) -> ArrayRecord:
    """Return an ArrayRecord."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})


def unpacked(arrays: ArrayRecord) -> dict[str, Any]:
    """Return the model that was sent, as it is compared with."""
    return {name: array.numpy() for name, array in arrays.items()}


BEFORE = packed(w=F32([1, 2]), b=F32([0]), mean=F32([5]))
AFTER = packed(w=F32([4, 6]), b=F32([12]), mean=F32([99]))


def test_the_norm_is_that_of_the_change_of_all_parameters_together() -> None:
    # 3, 4 and 12: sqrt(9 + 16 + 144) = 13; the running mean is no parameter.
    assert update_norm(AFTER, BEFORE, {"w", "b"}) == 13
    assert inspect_arrays(AFTER, unpacked(BEFORE), {"w", "b"}).update_norm == 13
    assert inspect_arrays(AFTER, unpacked(BEFORE), {"w"}).update_norm == 5
    assert update_norm(BEFORE, BEFORE, {"w", "b"}) == 0


def test_a_change_as_small_as_a_float32_can_show_is_none_of_zero() -> None:
    tiny = packed(w=F32([1e-45, 0]))
    assert update_norm(tiny, packed(w=F32([0, 0])), {"w"}) > 0


def test_a_negative_variance_is_refused_and_a_mean_may_be_negative() -> None:
    before = ArrayRecord({f"n.{key}": Array(F32([1])) for key in ("running_mean", "running_var")})
    mean = ArrayRecord({**before, "n.running_mean": Array(F32([-1]))})
    variance = ArrayRecord({**before, "n.running_var": Array(F32([-1e-9]))})
    assert inspect_arrays(mean, unpacked(before), set()).problem == ""
    assert "variance below 0" in inspect_arrays(variance, unpacked(before), set()).problem


def test_a_change_is_scaled_around_the_model_that_was_sent() -> None:
    scaled = scaled_update(AFTER, unpacked(BEFORE), {"w", "b"}, 0.5)
    assert scaled["w"].numpy().tolist() == [2.5, 4]
    assert scaled["b"].numpy().tolist() == [6]
    assert scaled["mean"].numpy().tolist() == [99]
    assert {array.dtype for array in scaled.values()} == {"float32"}


def test_scaling_survives_numbers_whose_difference_is_no_float32() -> None:
    low, high = packed(w=F32([-3e38])), packed(w=F32([3e38]))
    norm = update_norm(high, low, {"w"})
    assert norm == pytest.approx(6e38, rel=1e-6)
    scaled = scaled_update(high, unpacked(low), {"w"}, 1.0 / norm)["w"].numpy()
    assert np.isfinite(scaled).all()


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([5, 3, 0], ""),
        ([5, 4, 0], "add up to 9, but num-examples is 8"),
        ([5, 2, 0], "add up to 7, but num-examples is 8"),
        ([4, 3, 1], r"but it had \[5, 3, 0\]"),
        ([5, 3], "expected are 3 whole numbers"),
        ([9, -1, 0], "expected are 3 whole numbers"),
        ([5.0, 3.0, 0.0], "expected are 3 whole numbers"),
        ([2**41, 0, 0], "expected are 3 whole numbers"),
        (None, "its label counts are None"),
    ],
)
def test_counts_of_all_examples_add_up_to_num_examples(counts: Any, reason: str) -> None:
    found = wrong_label_counts(counts, [5, 3, 0], 8, None)
    assert re.search(reason or "^$", found), found


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([2, 1, 1], ""),  # one drawn
        ([11, 7, 1], ""),  # 16 drawn
        ([1, 1, 1], "draws 1 to 16"),  # nobody trains on nothing
        ([12, 7, 1], "draws 1 to 16"),
        ([0, 7, 1], "start at 1"),
        ([5, 5, 2], r"it counts labels \[2\], of which it has no example"),
    ],
)
def test_counts_of_drawn_batches_start_at_one_and_are_bounded(
    counts: list[int], reason: str
) -> None:
    found = wrong_label_counts(counts, [5, 3, 0], 8, 16)
    assert re.search(reason or "^$", found), found


GOOD_MOMENTS = ([2, 0], [4.0, 0.0], [10.0, 0.0])


def test_moments_of_real_values_are_taken() -> None:
    assert wrong_moments(GOOD_MOMENTS, 2, 3) == ""
    # Of equal values Cauchy and Schwarz are exact, and what is rounded may exceed it.
    for value in (0.1, 1e9, -7e-5):
        values = np.full((7, 1), value, dtype=np.float32)
        found = Moments.of(values)
        assert (
            wrong_moments([list(found.present), list(found.sums), list(found.squares)], 1, 7) == ""
        )


@pytest.mark.parametrize(
    "moments",
    [
        ([2], [4.0], [10.0]),
        (None, [4.0, 0.0], [10.0, 0.0]),
        ([4, 0], [4.0, 0.0], [10.0, 0.0]),  # more values than examples
        ([2, -1], [4.0, 0.0], [10.0, 0.0]),
        ([2, 0], [4.0, 1.0], [10.0, 0.0]),  # a sum of nothing
        ([2, 0], [4.0, 0.0], [7.9, 0.0]),  # 4^2 > 2 * 7.9
        ([2, 0], [math.nan, 0.0], [10.0, 0.0]),
        ([2, 0], [4.0, 0.0], [math.inf, 0.0]),
        ([2, 0], [4.0, 0.0], [math.nan, 0.0]),
        ([2, 0], [3e9, 0.0], [1e19, 0.0]),  # beyond the largest value
        ([2, 0], ["4", 0.0], [10.0, 0.0]),
        ([2.0, 0], [4.0, 0.0], [10.0, 0.0]),
    ],
)
def test_moments_that_no_values_have_are_refused(moments: tuple[object, ...]) -> None:
    assert wrong_moments(moments, 2, 3)

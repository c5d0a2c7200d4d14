"""Tables: what is refused, and what the model sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.data import DataError, Statistics
from common.data.kinds import Table

NAN = float("nan")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.1e9])
def test_a_number_that_can_t_be_computed_with_is_named_with_its_place(value: float) -> None:
    x = np.zeros((3, 2), dtype=np.float32)
    x[2, 1] = value
    with pytest.raises(DataError, match=r"clinic: 1 numbers .* at row 2, column 1\. Leave"):
        Table(2).check(x, "clinic")
    x[2, 1] = -1e9
    Table(2).check(x, "clinic")


def test_where_values_may_be_missing_a_nan_is_no_mistake_but_an_infinity_is() -> None:
    kind = Table(1, (2,), indicators=True)
    x = np.array([[np.nan, 1], [3, np.nan]], dtype=np.float32)
    kind.check(x, "clinic")
    x[1, 0] = np.inf
    with pytest.raises(DataError, match="1 numbers are infinite or beyond 1e"):
        kind.check(x, "clinic")


@pytest.mark.parametrize("code", [-1, 2, 0.5, np.nan])
def test_a_category_that_does_not_exist_is_named_with_its_place(code: float) -> None:
    x = np.array([[3, 1], [4, code]], dtype=np.float32)
    with pytest.raises(DataError, match="at row 1, column 1, is no category: allowed are 0 to 1"):
        Table(1, (2,)).check(x, "clinic")


def test_without_statistics_the_model_sees_the_numbers_as_they_are() -> None:
    assert Table(2).prepare(torch.tensor([[1.5, -2.0]])).tolist() == [[1.5, -2.0]]


def test_the_model_sees_standardised_numbers_what_is_missing_and_one_hot_categories() -> None:
    kind = Table(2, (3,), indicators=True, standardise=True)
    fitted = kind.fitted(Statistics((10.0, 1.0), (2.0, 0.0)))
    assert kind.shape == fitted.shape == (7,)
    stored = torch.tensor([[14.0, 5.0, 2.0], [NAN, NAN, NAN], [9.0, 1.0, 0.0]])
    assert fitted.prepare(stored).tolist() == [
        # (14 - 10) / 2; a column without spread says nothing; nothing is missing; the third of 3
        [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        # the mean in the place of both, and that both are missing; no category
        [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
        [-0.5, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    ]


def test_a_site_tells_of_its_numbers_only_and_of_nothing_where_nothing_is_standardised() -> None:
    x = np.array([[2, 1], [np.nan, 0], [4, 1]], dtype=np.float32)
    kind = Table(1, (2,), indicators=True, standardise=True)
    moments = kind.moments(x)
    assert (moments.present, moments.sums, moments.squares) == ((2,), (6.0,), (20.0,))
    assert (kind.measured, Table(1, (2,)).measured) == (1, 0)


def test_what_was_saved_when_tables_were_not_standardised_is_read() -> None:
    assert Table.of({"kind": "table", "shape": [5]}) == Table(5)


def test_there_is_no_augmentation_of_tables() -> None:
    assert Table(2).augmentation("none") is None
    with pytest.raises(DataError, match="'crop-flip' is for images"):
        Table(2).augmentation("crop-flip")

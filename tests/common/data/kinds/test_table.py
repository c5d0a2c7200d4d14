"""Tables: what is refused, and what the model sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.data import DataError
from common.data.kinds import Table


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.1e6])
def test_a_number_that_can_t_be_computed_with_is_named_with_its_place(value: float) -> None:
    x = np.zeros((3, 2), dtype=np.float32)
    x[2, 1] = value
    with pytest.raises(DataError, match=r"clinic: 1 numbers .* at row 2, column 1\. Fill"):
        Table(2).check(x, "clinic")
    x[2, 1] = -1e6
    Table(2).check(x, "clinic")


def test_the_model_sees_the_numbers_as_they_are() -> None:
    assert Table(2).prepare(torch.tensor([[1.5, -2.0]])).tolist() == [[1.5, -2.0]]


def test_there_is_no_augmentation_of_tables() -> None:
    assert Table(2).augmentation("none") is None
    with pytest.raises(DataError, match="'crop-flip' is for images"):
        Table(2).augmentation("crop-flip")

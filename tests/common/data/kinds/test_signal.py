"""Signals: what is refused, what a site tells of them, and what the model sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.data import DataError, Statistics
from common.data.kinds import Signal

WINDOWS = np.array([[[1, 3], [5, 5]], [[3, 5], [5, 5]]], dtype=np.float32)
"""Two windows of two channels and two moments."""


def test_a_site_tells_of_each_channel_the_mean_over_time_of_each_window() -> None:
    moments = Signal((2, 2), standardise=True).moments(WINDOWS)
    assert moments.present == (2, 2)
    # (1 + 3) / 2 + (3 + 5) / 2, and (1 + 9) / 2 + (9 + 25) / 2
    assert (moments.sums, moments.squares) == ((6.0, 10.0), (22.0, 50.0))
    # Mean 3, variance 22 / 2 - 3^2.
    assert Statistics.of(moments) == Statistics((3.0, 5.0), (float(np.float32(np.sqrt(2))), 0.0))


def test_each_channel_is_standardised_by_its_own() -> None:
    kind = Signal((2, 2), standardise=True)
    stored = torch.from_numpy(WINDOWS)
    assert kind.prepare(stored).tolist() == WINDOWS.tolist()
    fitted = kind.fitted(Statistics((3.0, 5.0), (2.0, 0.0)))
    assert fitted.prepare(stored).tolist() == [[[-1, 0], [0, 0]], [[0, 1], [0, 0]]]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.1e9])
def test_a_gap_is_named_with_its_place(value: float) -> None:
    x = WINDOWS.copy()
    x[1, 0, 1] = value
    with pytest.raises(DataError, match=r"clinic: 1 values .* at row 1, channel 0, moment 1"):
        Signal((2, 2)).check(x, "clinic")
    Signal((2, 2)).check(WINDOWS, "clinic")


def test_there_is_no_augmentation_of_signals() -> None:
    assert Signal((2, 2)).augmentation("none") is None
    with pytest.raises(DataError, match="not for signals"):
        Signal((2, 2)).augmentation("crop-flip")

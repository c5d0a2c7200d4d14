"""Moments of columns: by hand, added up over sites, and what is made of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from common.data import Moments, Statistics
from common.data import statistics as module


def test_moments_count_what_is_present() -> None:
    values = np.array([[1, np.nan], [3, np.nan], [np.nan, np.nan]], dtype=np.float32)
    assert Moments.of(values) == Moments((2, 0), (4.0, 0.0), (10.0, 0.0))
    assert Moments.of(values[:0]) == Moments((0, 0), (0.0, 0.0), (0.0, 0.0))


def test_mean_and_standard_deviation_by_hand() -> None:
    # 1 and 3: mean 2, variance (1 + 1) / 2 = 1. A column that nobody has, and a constant one.
    moments = Moments((2, 0, 3), (4.0, 0.0, 0.3), (10.0, 0.0, 0.03))
    mean, std = np.float32(0.1).item(), 0.0
    assert Statistics.of(moments) == Statistics((2.0, 0.0, mean), (1.0, 0.0, std))


def test_the_sites_moments_are_those_of_all_their_rows_in_any_order_to_the_bit() -> None:
    random = np.random.default_rng(0)
    rows = (random.normal(3, 2, size=(90, 2)) * 10.0 ** random.integers(-6, 6, (90, 2))).astype(
        np.float32
    )
    rows[random.random(rows.shape) < 0.2] = np.nan
    sites = [Moments.of(part) for part in np.split(rows, [5, 30, 31])]
    pooled = {Moments.pooled(order) for order in itertools.permutations(sites)}
    assert len(pooled) == 1
    found, whole = Statistics.of(pooled.pop()), rows.astype(np.float64)
    assert found.mean == pytest.approx(np.nanmean(whole, axis=0), rel=1e-6)
    assert found.std == pytest.approx(np.nanstd(whole, axis=0), rel=1e-6)


def test_blocks_of_a_large_array_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(20, dtype=np.float32).reshape(10, 2)
    whole = Moments.of(values)
    monkeypatch.setattr(module, "_BLOCK", 6)
    assert Moments.of(values) == whole
    assert whole.sums == (90.0, 100.0)


def test_a_year_has_a_spread_and_a_constant_has_none_whatever_rounding_leaves() -> None:
    years = np.array([[2020.0, 0.1], [2022.0, 0.1]] * 50_000, dtype=np.float32)
    std = Statistics.of(Moments.of(years)).std
    assert std[0] == pytest.approx(1.0)
    assert std[1] == 0.0
    assert all(math.isfinite(value) for value in std)

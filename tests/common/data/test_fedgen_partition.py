from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from common.data import DataError
from common.data.fedgen_partition import fedgen_partition


def split(
    labels: np.ndarray, users: int, *, alpha: float, ratio: float, least: int = 1, seed: int = 0
) -> list[np.ndarray]:
    return fedgen_partition(
        labels,
        users,
        alpha=alpha,
        ratio=ratio,
        min_partition_size=least,
        generator=np.random.default_rng(seed),
    )


def test_at_half_and_20_users_1500_of_each_mnist_digit_are_used(real_data: Path) -> None:
    raw = (real_data / "MNIST" / "raw" / "train-labels-idx1-ubyte").read_bytes()
    assert struct.unpack(">II", raw[:8]) == (2049, 60_000)
    labels = np.frombuffer(raw, dtype=np.uint8, offset=8).astype(np.int64)
    # The cap is 0.5 * 60,000 / 20 = 1,500, below half of every digit (the rarest has 5,421).
    shares = split(labels, 20, alpha=0.1, ratio=0.5, least=10)
    assert np.bincount(labels[np.concatenate(shares)]).tolist() == [1500] * 10
    assert min(len(share) for share in shares) >= 10


def test_a_label_rarer_than_the_cap_gives_its_ratio() -> None:
    # Cap: 0.5 * 440 / 2 = 110. Label 0: min(110, 200) = 110; label 1: min(110, 20) = 20.
    labels = np.array([0] * 400 + [1] * 40)
    shares = split(labels, 2, alpha=10.0, ratio=0.5)
    assert np.bincount(labels[np.concatenate(shares)]).tolist() == [110, 20]


def test_at_ratio_one_no_label_is_capped() -> None:
    labels = np.array([0] * 400 + [1] * 40)
    shares = split(labels, 4, alpha=10.0, ratio=1.0)
    assert sorted(np.concatenate(shares).tolist()) == list(range(440))


def test_a_user_at_the_cap_gets_no_more() -> None:
    # Two users, cap 0.5 * 100 / 2 = 25, 25 examples of each of two labels. With so small an alpha
    # one user takes (nearly) all of the first label, so the other takes all of the second.
    labels = np.array([0] * 50 + [1] * 50)
    shares = split(labels, 2, alpha=1e-3, ratio=0.5, least=25)
    assert [len(share) for share in shares] == [25, 25]
    assert sorted(set(labels[share].tolist()) == {0} for share in shares) == [False, True]


def test_shares_are_disjoint_and_the_samples_of_a_label_are_drawn_at_random() -> None:
    labels = np.zeros(1000, dtype=np.int64)
    rows = np.concatenate(split(labels, 4, alpha=1.0, ratio=0.5))
    assert len(np.unique(rows)) == len(rows) == 125  # min(0.5 * 1000 / 4, 500)
    assert rows.max() > 500


def test_giving_up_names_the_settings_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.data.fedgen_partition.MAX_DRAWS", 3)
    with pytest.raises(DataError, match=r"in 3 draws.*larger data\.alpha or data\.fraction"):
        split(np.zeros(100, dtype=np.int64), 10, alpha=1.0, ratio=0.5, least=6)

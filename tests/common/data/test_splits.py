from __future__ import annotations

import numpy as np
import pytest

from common.data.splits import held_label_rows, stratified_fraction, validation_split


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_fraction_takes_the_same_part_of_every_label() -> None:
    labels = np.array([0] * 100 + [1] * 40 + [5] * 8)
    rows = stratified_fraction(labels, 0.25, generator())
    assert np.bincount(labels[rows]).tolist() == [25, 10, 0, 0, 0, 2]
    assert (np.diff(rows) > 0).all()


def test_a_fraction_keeps_one_example_of_a_rare_label() -> None:
    rows = stratified_fraction(np.array([0] * 50 + [1]), 0.1, generator())
    assert 50 in rows
    assert len(rows) == 6


def test_the_whole_fraction_is_everything_in_order() -> None:
    assert stratified_fraction(np.array([3, 1, 2]), 1.0, generator()).tolist() == [0, 1, 2]


def test_fractions_of_different_seeds_differ() -> None:
    labels = np.zeros(100, dtype=np.int64)
    first, second = (stratified_fraction(labels, 0.5, generator(seed)) for seed in (0, 1))
    assert first.tolist() != second.tolist()


def test_a_fraction_of_no_examples_is_none() -> None:
    assert len(stratified_fraction(np.array([], dtype=np.int64), 0.5, generator())) == 0


@pytest.mark.parametrize(
    ("count", "fraction", "expected"),
    [
        (100, 0.1, (90, 10)),
        (3, 0.1, (2, 1)),  # round(0.3) is 0, but a validation split that is wanted is not empty
        (2, 0.9, (1, 1)),  # round(1.8) is 2, but one stays for training
        (1, 0.5, (1, 0)),
        (0, 0.5, (0, 0)),
        (10, 0.0, (10, 0)),
    ],
)
def test_a_validation_split_leaves_examples_on_both_sides(
    count: int, fraction: float, expected: tuple[int, int]
) -> None:
    rows = np.arange(count) * 7
    train, validation = validation_split(rows, fraction, generator())
    assert (len(train), len(validation)) == expected
    assert sorted([*train, *validation]) == rows.tolist()


def test_validation_splits_are_random() -> None:
    first, second = (validation_split(np.arange(100), 0.2, generator(s))[1] for s in (0, 1))
    assert first.tolist() != second.tolist()
    assert first.tolist() != list(range(20))


def test_held_labels_are_dealt_in_order_of_partition_id_without_overlap() -> None:
    # Label 0 at rows 0..6 (7 of them, 7 // 3 = 2 each), label 1 at rows 7..9 (3 // 3 = 1 each).
    labels = np.array([0] * 7 + [1] * 3)
    held = [frozenset({0}), frozenset({1}), frozenset({0, 1})]
    shares = [held_label_rows(labels, held, number).tolist() for number in range(3)]
    assert shares == [[0, 1], [7], [2, 3, 8]]


def test_a_label_with_fewer_test_examples_than_clients_is_dealt_to_none() -> None:
    held = [frozenset({4}), frozenset({4})]
    assert held_label_rows(np.array([4]), held, 0).tolist() == []

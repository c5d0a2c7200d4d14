from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from common.data.splits import (
    content_keys,
    held_label_rows,
    lasting_split,
    stratified_fraction,
    validation_split,
)


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


def keys_of(*values: int) -> np.ndarray:
    """Return the keys of images that are filled with one value each."""
    return content_keys(np.array(values, dtype=np.uint8).repeat(12).reshape(-1, 1, 3, 4))


def test_keys_of_examples_depend_on_their_content_alone() -> None:
    first, second = keys_of(3, 7, 3), keys_of(7, 9)
    assert first[0] == first[2] != first[1] == second[0] != second[1]


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_a_lasting_split_holds_the_fraction_within_what_chance_does(fraction: float) -> None:
    keys = content_keys(np.arange(20_000))
    for seed in range(3):
        _, validation = lasting_split(np.arange(20_000), keys, fraction, seed)
        # Five standard deviations of a binomial count.
        spread = 5 * np.sqrt(20_000 * fraction * (1 - fraction))
        assert abs(len(validation) - 20_000 * fraction) < spread


def test_lasting_splits_of_two_seeds_have_by_chance_in_common_what_they_have() -> None:
    keys = content_keys(np.arange(20_000))
    first, second = (lasting_split(np.arange(20_000), keys, 0.25, seed)[1] for seed in (4, 5))
    # Both with probability 1/16: 1,250 of 20,000, give or take 34.
    assert abs(len(np.intersect1d(first, second)) - 1250) < 5 * 34


def test_examples_that_come_or_go_move_no_other_to_validation() -> None:
    keys = content_keys(np.arange(1050))
    grown = [set(side.tolist()) for side in lasting_split(np.arange(1050), keys, 0.1, 0)]
    before = [set(side.tolist()) for side in lasting_split(np.arange(1000), keys[:1000], 0.1, 0)]
    assert before[0] <= grown[0]
    assert before[1] <= grown[1]


def test_copies_of_one_image_are_on_one_side() -> None:
    keys = keys_of(*range(50), *range(50))
    train, validation = lasting_split(np.arange(100), keys, 0.3, 0)
    assert set(train % 50).isdisjoint(set(validation % 50))


@pytest.mark.parametrize(
    ("count", "fraction", "sizes"), [(2, 1e-9, (1, 1)), (3, 0.999999, (1, 2)), (1, 0.5, (1, 0))]
)
def test_a_lasting_split_leaves_examples_on_both_sides(
    count: int, fraction: float, sizes: tuple[int, int]
) -> None:
    keys = content_keys(np.arange(count))
    assert tuple(map(len, lasting_split(np.arange(count), keys, fraction, 0))) == sizes


def test_the_one_example_that_is_forced_into_validation_is_replaced_by_new_ones_only() -> None:
    keys = content_keys(np.arange(200))
    forced = [set(lasting_split(np.arange(n), keys[:n], 1e-9, 0)[1]) for n in range(2, 200)]
    for count, (before, after) in enumerate(pairwise(forced), start=2):
        assert after in (before, {count})


def test_held_labels_are_dealt_in_order_of_partition_id_without_overlap() -> None:
    # Label 0 at rows 0..6 (7 of them, 7 // 3 = 2 each), label 1 at rows 7..9 (3 // 3 = 1 each).
    labels = np.array([0] * 7 + [1] * 3)
    held = [frozenset({0}), frozenset({1}), frozenset({0, 1})]
    shares = [held_label_rows(labels, held, number).tolist() for number in range(3)]
    assert shares == [[0, 1], [7], [2, 3, 8]]


def test_a_label_with_fewer_test_examples_than_clients_is_dealt_to_none() -> None:
    held = [frozenset({4}), frozenset({4})]
    assert held_label_rows(np.array([4]), held, 0).tolist() == []

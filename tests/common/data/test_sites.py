"""Sites that the data themselves name."""

from __future__ import annotations

import numpy as np
import pytest

from common.data import DataError
from common.data.sites import Sites


def test_each_different_value_is_a_site_in_order_and_a_client_can_be_called_so() -> None:
    sites = Sites.named_by(["Zürich", "Basel Nord", "Zürich"], "clinic", "here")
    assert sites.names == ("Basel-Nord", "Z-rich")
    assert sites.of.tolist() == [1, 0, 1]


def test_numbers_are_in_order_of_their_size_and_named_after_the_column() -> None:
    assert Sites.named_by(["10", "9"], "ward", "here").names == ("ward-9", "ward-10")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["a", "", "b"], "here: row 1 has no value in 'clinic'"),
        (["a b", "a-b"], "make no names of clients of their own: a-b"),
        ([".", "a"], r"of their own: \."),
    ],
)
def test_values_that_make_no_clients_are_refused(values: list[str], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        Sites.named_by(values, "clinic", "here")


def test_shares_are_the_sites_rows_and_a_fraction_of_every_label_of_each() -> None:
    sites = Sites(("a", "b"), np.array([0, 1] * 8))
    labels = np.array([0, 0, 1, 1] * 4)
    assert [share.tolist() for share in sites.shares(labels, 1.0, 0)] == [
        list(range(0, 16, 2)),
        list(range(1, 16, 2)),
    ]
    for share in sites.shares(labels, 0.5, 0):
        assert np.bincount(labels[share]).tolist() == [2, 2]
        assert share.tolist() == sorted(share)

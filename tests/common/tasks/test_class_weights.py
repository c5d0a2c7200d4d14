"""Weights of classes: from counts by hand, and what can't be."""

from __future__ import annotations

import pytest

from common.config import SettingsError
from common.data import Statistics
from common.tasks.class_weights import class_weights, inverse_frequency
from tests.settings import make_settings


def test_weights_are_inverse_to_counts_with_a_mean_of_one() -> None:
    # 1/30, 1/10 and 1/10 have the mean 7/90; a class without examples weighs 1.
    expected = [90 / (30 * 7), 90 / (10 * 7), 90 / (10 * 7), 1.0]
    assert inverse_frequency([30, 10, 10, 0]) == pytest.approx(expected)


def test_given_weights_are_one_for_each_class() -> None:
    settings = make_settings(**{"task.class-weights": "1,2.5"}).task
    assert class_weights(settings, 2, Statistics()) == (1.0, 2.5)
    with pytest.raises(SettingsError, match=r"2 numbers, and the data have 3 classes"):
        class_weights(settings, 3, Statistics())


def test_weights_of_the_federation_come_from_its_counts() -> None:
    settings = make_settings(**{"task.class-weights": "federation"}).task
    found = class_weights(settings, 2, Statistics(label_counts=(1, 3)))
    assert found == pytest.approx((1.5, 0.5))  # 1 and 1/3 over their mean of 2/3
    assert class_weights(settings, 2, Statistics()) is None


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"task.class-weights": "1,-2"}, "positive number for each class"),
        ({"task.class-weights": "often"}, "positive number for each class"),
        ({"task.class-weights": "federation", "algorithm": "fedlc"}, "replaces the loss"),
        (
            {"task.class-weights": "federation", "task.name": "regression", "data.source": "npz"},
            "has no classes to count",
        ),
        (
            {"task.name": "multi-label", "algorithm": "fedgen", "data.source": "npz"},
            "'fedgen' needs class labels",
        ),
        ({"task.name": "multi-label", "data.source": "npz"}, "needs the number of labels"),
        ({"data.num-labels": 3}, "only task 'multi-label'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(overrides: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        make_settings(**overrides)

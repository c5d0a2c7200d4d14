"""What past rounds decide: who is left out, and when a run ends early."""

from __future__ import annotations

from typing import Any

import pytest

from common.tasks import Headline
from server_app.report.history import (
    Outcome,
    out_of_patience,
    outcome_of,
    recently_failed,
    shut_out,
)

ACCURACY = Headline("accuracy")


def line(**changes: Any) -> dict[str, Any]:
    """Return a round's line in metrics.jsonl."""
    plain: dict[str, Any] = {
        "round": 4,
        "refused": {"b": "NaN"},
        "missing": ["c"],
        "global": {"accuracy": 0.75, "loss": 0.5},
        "clients": {"mean": 0.7, "worst": {"name": "a", "accuracy": 0.6}, "loss": 0.9},
        "evaluation": {"participants": ["a"]},
    }
    return plain | changes


def evaluations(metric: str, *values: float | None) -> list[Outcome]:
    """Return rounds 1, 2, ... of those values, None for a round without evaluation."""
    return [
        Outcome(n, (), value is not None, {} if value is None else {metric: value})
        for n, value in enumerate(values, start=1)
    ]


def test_a_line_becomes_its_outcome() -> None:
    outcome = outcome_of(line(), ACCURACY)
    assert (outcome.server_round, outcome.failed, outcome.evaluated) == (4, ("b", "c"), True)
    assert outcome.missing == ("c",)
    assert outcome.scores == {
        "global-score": 0.75,
        "global-loss": 0.5,
        "clients-score": 0.7,
        "clients-worst": 0.6,
        "clients-loss": 0.9,
    }


def test_a_line_without_evaluation_has_no_scores() -> None:
    outcome = outcome_of(line(**{"global": None, "clients": None, "evaluation": None}), ACCURACY)
    assert not outcome.evaluated
    assert outcome.scores == {}


def test_a_loss_that_was_not_finite_and_so_became_null_is_no_score() -> None:
    outcome = outcome_of(
        line(**{"global": {"accuracy": 0.1, "loss": None}, "clients": None}), ACCURACY
    )
    assert outcome.evaluated
    assert outcome.scores == {"global-score": 0.1}


def test_two_replies_that_cannot_be_unpacked_shut_a_client_out_whatever_they_answered() -> None:
    trained = line(unreadable=["b"])
    evaluated = line(evaluation={"participants": ["a"], "unreadable": ["b", "c"]})
    assert shut_out([outcome_of(trained, ACCURACY)]) == set()
    assert shut_out([outcome_of(trained, ACCURACY), outcome_of(evaluated, ACCURACY)]) == {"b"}
    assert shut_out([outcome_of(line(unreadable=["c", "c"]), ACCURACY)]) == {"c"}


def test_lines_of_version_0_1_shut_nobody_out() -> None:
    assert shut_out([outcome_of(line(), ACCURACY)] * 5) == set()


def test_a_client_is_left_out_for_as_many_rounds_as_set() -> None:
    history = [Outcome(1, ("a",), False, {}), Outcome(2, ("b",), False, {})]
    assert recently_failed(history, 2, 0) == set()
    assert recently_failed(history, 2, 1) == {"a"}
    assert recently_failed(history, 3, 1) == {"b"}
    assert recently_failed(history, 3, 2) == {"a", "b"}
    assert recently_failed(history, 4, 2) == {"b"}


def test_rounds_that_are_run_again_do_not_count_as_past() -> None:
    assert recently_failed([Outcome(5, ("a",), False, {})], 5, 3) == set()


@pytest.mark.parametrize(
    ("values", "stops"),
    [
        ((0.5,), False),
        ((0.5, 0.4), False),
        ((0.5, 0.4, 0.49), True),
        ((0.5, 0.5, 0.5), True),  # standing still is no improvement
        ((0.5, 0.4, 0.6), False),
        ((0.5, 0.4, 0.6, 0.6, 0.6), True),
        ((0.5, None, None, 0.4), False),  # rounds without evaluation don't count
        ((0.5, None, 0.4, None, 0.4), True),
    ],
)
def test_patience_of_two_ends_after_two_evaluations_without_a_better_one(
    values: tuple[float | None, ...], stops: bool
) -> None:
    history = evaluations("global-score", *values)
    assert bool(out_of_patience(history, "global-score", 2, ACCURACY)) is stops


def test_of_a_loss_less_is_better() -> None:
    falling = evaluations("clients-loss", 0.9, 0.8, 0.7)
    rising = evaluations("clients-loss", 0.7, 0.8, 0.9)
    assert out_of_patience(falling, "clients-loss", 2, ACCURACY) == ""
    assert "best in round 1 (0.7000)" in out_of_patience(rising, "clients-loss", 2, ACCURACY)


def test_of_a_headline_that_is_an_error_less_is_better() -> None:
    rmse = Headline("rmse", more_is_better=False)
    falling = evaluations("global-score", 0.9, 0.8, 0.7)
    assert out_of_patience(falling, "global-score", 2, rmse) == ""
    assert "best in round 1" in out_of_patience(falling, "global-score", 2, ACCURACY)
    line_of_it = line(**{"global": {"rmse": 0.25, "loss": 0.5}, "clients": None})
    assert outcome_of(line_of_it, rmse).scores == {"global-score": 0.25, "global-loss": 0.5}


def test_an_evaluation_whose_metric_is_not_finite_is_no_improvement() -> None:
    history = [*evaluations("global-loss", 0.5), Outcome(2, (), True, {}), Outcome(3, (), True, {})]
    assert "2 evaluations" in out_of_patience(history, "global-loss", 2, ACCURACY)


def test_patience_zero_never_ends_a_run() -> None:
    assert (
        out_of_patience(evaluations("global-loss", 1.0, 2.0, 3.0), "global-loss", 0, ACCURACY) == ""
    )


def test_a_metric_that_is_never_reported_ends_nothing() -> None:
    assert out_of_patience(evaluations("clients-loss", 1.0, 2.0), "global-loss", 1, ACCURACY) == ""

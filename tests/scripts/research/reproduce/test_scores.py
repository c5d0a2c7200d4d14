"""From lines to mean ± std: numbers derived by hand."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.moonflower.research.reproduce.scores import curve, describe, mean_std, score_of_run
from scripts.moonflower.research.reproduce.table_file import Score
from tests.scripts.research.reproduce.tables import TABLE, line

LAST, BEST = TABLE.scores["last"], TABLE.scores["best"]
CLIENTS = LAST.model_copy(update={"number": "clients.mean", "over": "clients"})


def run(*accuracies: float) -> list[dict[str, Any]]:
    """Return the lines of a run."""
    return [line(number, each) for number, each in enumerate(accuracies, start=1)]


def test_the_last_round_that_was_evaluated_counts() -> None:
    lines = [*run(0.9, 0.7), {**line(3, 0.0), "global": None}]
    assert score_of_run(lines, LAST) == 0.7
    assert curve(lines, LAST) == [(1, 0.9), (2, 0.7)]


def test_the_mean_of_the_best_rounds_counts() -> None:
    assert score_of_run(run(0.5, 0.75, 0.25, 0.625), BEST) == 0.6875  # (0.75 + 0.625) / 2
    assert score_of_run(run(0.5), BEST) == 0.5  # there are no two


def test_nothing_measured_is_no_number() -> None:
    lines = [{**line(1, 0.5), "global": {"accuracy": None}, "clients": None}]
    assert score_of_run(lines, LAST) is None
    assert mean_std([lines], BEST) is None
    assert mean_std([lines], CLIENTS) is None


def test_the_deviation_is_the_samples_over_runs() -> None:
    # 90, 92, 97: mean 93, squares of the deviations 9 + 1 + 16 = 26, and sqrt(26 / 2) = 3.60555.
    result = mean_std([run(0.90), run(0.92), run(0.97)], LAST)
    assert result is not None
    assert result.mean == pytest.approx(93.0)
    assert result.std == pytest.approx(3.605551275)
    assert str(result) == "93.00 ± 3.61"
    assert result.runs == 3


def test_one_run_has_no_deviation() -> None:
    assert str(mean_std([run(0.9)], LAST)) == "90.00"


def test_the_deviation_over_clients_takes_every_client_of_every_run() -> None:
    first, second = line(1, 0.5), line(1, 0.5)
    first["clients"]["per-client"] = {"a": 0.2, "b": 0.4}
    second["clients"]["per-client"] = {"a": 0.6, "b": 0.8}
    # 20, 40, 60, 80: mean 50, squares 900 + 100 + 100 + 900 = 2000, sqrt(2000 / 3) = 25.8199.
    result = mean_std([[first], [second]], CLIENTS)
    assert str(result) == "50.00 ± 25.82"
    assert result is not None
    assert result.runs == 2


def test_the_rule_is_said_with_its_protocol_and_reason() -> None:
    score = Score(protocol="official", number="clients.weighted", best=5, why="its code")
    text = describe(score)
    for part in ("`official`", "mean of the 5 best rounds", "(seeds)", "(its code)"):
        assert part in text
    assert "last round" in describe(LAST)
    assert "all clients of all runs" in describe(CLIENTS)


def test_of_an_error_the_smallest_rounds_are_the_best_and_nothing_is_percent() -> None:
    rmse = BEST.model_copy(update={"number": "global.rmse", "unit": "", "better": "less"})
    lines = [{**line(n, 0.0), "global": {"rmse": value}} for n, value in enumerate((4.0, 1.0, 2.0))]
    assert score_of_run(lines, rmse) == 1.5  # (1 + 2) / 2
    assert str(mean_std([lines], rmse)) == "1.50"
    assert "the global model's rmse on the whole test set" in describe(rmse)


def test_a_client_whose_score_is_not_defined_adds_no_value() -> None:
    lines = [line(1, 0.5)]
    lines[0]["clients"]["per-client"] = {"a": None, "b": 0.25}
    assert str(mean_std([lines], CLIENTS)) == "25.00"

"""Experiments side by side, with numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.experiments.experiment import Experiment, read_experiment
from scripts.moonflower.experiments.side_by_side import (
    ComparisonError,
    compared,
    measures_of,
    paired,
)
from tests.scripts.experiments.written import facts_of, line_of, write_experiment


def experiment(folder: Path, name: str, scores: list[float | None], **settings: Any) -> Experiment:
    """Write an experiment whose global model had these scores; None: not evaluated."""
    lines = []
    for number, score in enumerate(scores, start=1):
        line = line_of(number)
        if score is None:
            line |= {"global": None, "clients": None, "evaluation": None}
        else:
            line["global"]["accuracy"] = score
            line["clients"]["worst"]["accuracy"] = score / 2
        lines.append(line)
    facts = facts_of(name, **settings)
    return read_experiment(write_experiment(folder / name, lines, facts))


def test_the_measures_of_a_run(tmp_path: Path) -> None:
    found = measures_of(experiment(tmp_path, "a", [0.5, None, 0.9, 0.8]), to=0.7)
    # A round sends 3 MB, receives 1 MB and takes 2.75 s (written.py); 0.7 is passed in round 3.
    assert found == {
        "final": 0.8,
        "best": 0.9,
        "worst": 0.4,
        "rounds-to": 3.0,
        "megabytes-to": 12.0,
        "megabytes": 16.0,
        "seconds": 11.0,
    }


def test_a_score_that_was_not_reached_took_nothing(tmp_path: Path) -> None:
    found = measures_of(experiment(tmp_path, "a", [0.5]), to=0.7)
    assert found["rounds-to"] is None
    assert found["megabytes-to"] is None


def seeds(folder: Path) -> list[Experiment]:
    """Two seeds of FedAvg, three of MOON."""
    return [
        experiment(folder, "avg-0", [0.6], algorithm="fedavg", seed=0),
        experiment(folder, "moon-1", [0.9], algorithm="moon", seed=1),
        experiment(folder, "moon-0", [0.7], algorithm="moon", seed=0),
        experiment(folder, "avg-1", [0.7], algorithm="fedavg", seed=1),
        experiment(folder, "moon-2", [0.2], algorithm="moon", seed=2),
    ]


def test_equal_settings_are_a_row_over_their_seeds(tmp_path: Path) -> None:
    fedavg, moon = compared(seeds(tmp_path))
    assert [fedavg.label, moon.label] == ["fedavg", "moon"]
    assert list(moon.by_seed) == [0, 1, 2]
    final = moon.spread("final")
    assert final is not None
    # (0.7 + 0.9 + 0.2) / 3 = 0.6; squares 0.01 + 0.09 + 0.16 over 2.
    assert final.mean == pytest.approx(0.6)
    assert final.std == pytest.approx(0.13**0.5)


def test_differences_are_of_pairs_of_one_seed(tmp_path: Path) -> None:
    fedavg, moon = compared(seeds(tmp_path))
    found = paired(fedavg, moon)
    assert found is not None
    # 0.7 - 0.6 and 0.9 - 0.7: mean 0.15, each 0.05 away. Seed 2 has no partner.
    assert (found.mean, found.count) == (pytest.approx(0.15), 2)
    assert found.std == pytest.approx((2 * 0.05**2) ** 0.5)


def test_the_label_says_what_differs(tmp_path: Path) -> None:
    groups = compared(
        [
            experiment(tmp_path, "a", [0.5], **{"algorithm": "moon", "moon.mu": 1.0}),
            experiment(tmp_path, "b", [0.5], **{"algorithm": "moon", "moon.mu": 5.0}),
        ]
    )
    assert [each.label for each in groups] == ["moon.mu=1.0", "moon.mu=5.0"]


def test_what_can_not_be_compared_is_refused_with_the_reason(tmp_path: Path) -> None:
    one = experiment(tmp_path, "one", [0.5])
    with pytest.raises(ComparisonError, match="'one' and 'two' have the same settings and seed 0"):
        compared([one, experiment(tmp_path, "two", [0.6])])
    with pytest.raises(ComparisonError, match="no evaluated round yet: none"):
        compared([one, experiment(tmp_path, "none", [None])])
    facts = facts_of("other") | {"headline": {"name": "rmse", "more-is-better": False}}
    line = line_of(1)
    line["global"]["rmse"] = 3.0
    other = read_experiment(write_experiment(tmp_path / "other", [line], facts))
    with pytest.raises(ComparisonError, match="accuracy of one; rmse of other"):
        compared([one, other])


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *arguments])
    return result.exit_code, result.output


def test_the_command_prints_tables_json_and_draws(tmp_path: Path) -> None:
    names = [each.name for each in seeds(tmp_path)]
    where = ["--output-dir", str(tmp_path)]
    picture = tmp_path / "curves.svg"
    code, text = run(*names, *where, "--to", "0.65", "--picture", str(picture))
    assert code == 0
    assert "| fedavg | 2 | 0.650 ± 0.071 |" in text
    assert "| moon | 3 | 0.600 ± 0.361 |" in text
    assert "1 ± 0 (2 of 3)" in text  # seed 2 never came to 0.65
    assert "| moon | +0.150 ± 0.071 | 2 |" in text
    assert picture.read_text().startswith("<?xml")
    code, text = run(*names, *where, "--json")
    found = json.loads(text)
    assert found["score"] == "accuracy"
    assert found["groups"][1]["minus-first"]["count"] == 2
    assert found["groups"][0]["experiments"] == {"0": "avg-0", "1": "avg-1"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["nothing"], "nothing"), (["avg-0", "--picture", "a.gif"], ".svg, .png or .pdf")],
)
def test_bad_usage_is_said(tmp_path: Path, arguments: list[str], reason: str) -> None:
    seeds(tmp_path)
    code, text = run(*arguments, "--output-dir", str(tmp_path))
    assert code == 2
    assert reason in text

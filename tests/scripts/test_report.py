"""The table at the end says what the server measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scripts.moonflower.report import sites_table, summarise, table, written

CLIENTS = {"mean": 0.8, "std": 0.1, "worst": {"name": "site-b", "accuracy": 0.7}}


def metrics_file(folder: Path, *rounds: dict[str, Any]) -> Path:
    """Write rounds as metrics.jsonl."""
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in rounds))
    return path


def text_of(algorithm: str, metrics: Path) -> str:
    """Return the table as plain text."""
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(table(algorithm, summarise(metrics)))
    return capture.get()


def test_the_newest_evaluation_is_reported(tmp_path: Path) -> None:
    metrics = metrics_file(
        tmp_path,
        {"round": 1, "clients": {**CLIENTS, "mean": 0.1}, "global": {"accuracy": 0.2}},
        {"round": 2, "clients": CLIENTS, "global": {"accuracy": 0.9}},
        {"round": 3, "clients": None, "global": None},
    )
    text = text_of("moon", metrics)
    for part in ("moon", " 3 ", "0.900", "0.800 ± 0.100", "0.700 (site-b)"):
        assert part in text


def test_the_clients_own_models_have_a_column_where_they_were_scored(tmp_path: Path) -> None:
    line = {"round": 1, "clients": CLIENTS, "global": {"accuracy": 0.9}}
    own = {**CLIENTS, "mean": 0.95, "std": 0.02}
    assert "Own models" not in text_of("moon", metrics_file(tmp_path, line))
    text = text_of("moon", metrics_file(tmp_path, {**line, "personal": own}))
    assert "Own models" in text
    assert "0.950 ± 0.020" in text


def test_any_task_s_headline_is_named_and_shown(tmp_path: Path) -> None:
    worst = {"mean": 1.25, "std": 0.5, "worst": {"name": "site-b", "rmse": 2.5}}
    global_model = {"rmse": 1.5, "mae": 0.75, "loss": 2.25}
    text = text_of(
        "moon", metrics_file(tmp_path, {"round": 1, "clients": worst, "global": global_model})
    )
    for part in ("rmse", "1.500", "1.250 ± 0.500", "2.500 (site-b)"):
        assert part in text
    only_clients = metrics_file(tmp_path, {"round": 1, "clients": worst, "global": None})
    assert "2.500 (site-b)" in text_of("moon", only_clients)


def test_what_was_not_measured_is_a_dash(tmp_path: Path) -> None:
    text = text_of("fedavg", metrics_file(tmp_path, {"round": 1, "clients": None, "global": None}))
    assert text.count(" - ") == 3


def test_a_run_without_a_round_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no round"):
        summarise(metrics_file(tmp_path))


def test_only_what_exists_is_listed(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    assert written(tmp_path) == [tmp_path / "metrics.jsonl", tmp_path / "final"]


def sites_text(metrics: Path) -> str:
    """Return the table of sites as plain text; empty where there is none."""
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        if (found := sites_table(metrics)) is not None:
            console.print(found)
    return capture.get()


def test_sites_with_names_of_their_own_have_a_row_each_and_an_undefined_score_its_reason(
    tmp_path: Path,
) -> None:
    auroc = {
        "per-client": {"bern": 0.75, "ulm": None},
        "undefined": {"per-client": {"ulm": "all examples are of class 1"}},
    }
    clients = {
        **CLIENTS,
        "weighted": 0.5,
        "auroc": 0.625,
        "per-client": {"ulm": 0.25, "bern": 0.875},
        "scores": {"auroc": auroc},
    }
    text = sites_text(metrics_file(tmp_path, {"round": 1, "clients": clients}))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    assert [row for row in rows if row] == [
        ["bern", "0.875", "0.750"],
        ["ulm", "0.250", "-"],
        ["all together", "0.500", "0.625"],
    ]
    assert "auroc of ulm: all examples are of class 1" in " ".join(text.split())
    unnamed = {**clients, "per-client": {"client-0000": 0.25, "client-0001": 0.875}}
    assert sites_text(metrics_file(tmp_path, {"round": 1, "clients": unnamed})) == ""
    assert sites_text(metrics_file(tmp_path, {"round": 1, "clients": None})) == ""

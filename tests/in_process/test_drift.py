"""The clients' drift is in metrics.jsonl, and tells alike clients from unlike ones."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.in_process.grid import run_in_process

SHORT: dict[str, Any] = {
    "algorithm": "fedavg",
    "experiment": "exp",
    "num-rounds": 2,
    "train.local-epochs": 2,
}


def cosines(tmp_path: Path, **overrides: Any) -> list[dict[str, dict[str, float | None]]]:
    folder = run_in_process({**SHORT, **overrides}, 4, tmp_path)
    return [json.loads(line)["cosines"] for line in (folder / "metrics.jsonl").open()]


def test_clients_with_other_labels_go_other_ways(tmp_path: Path) -> None:
    alike, unlike = (
        cosines(tmp_path / kind, **{"data.partition": kind, "data.classes-per-client": 2})
        for kind in ("iid", "classes-per-client")
    )
    for part in ("update", "predictor"):
        one, other = ([each[part] for each in found[-1].values()] for found in (alike, unlike))
        assert len(one) == len(other) == 4
        assert min(one) > max(other)  # type: ignore[type-var]
        assert mean(one) > mean(other) + 0.1  # type: ignore[type-var]


@pytest.mark.parametrize(
    "overrides", [{"server.cosines": False}, {"model.sharing": "nothing"}], ids=str
)
def test_none_where_they_are_not_wanted_or_nothing_is_shared(
    tmp_path: Path, overrides: dict[str, Any]
) -> None:
    assert cosines(tmp_path, **overrides) == [{}, {}]


def test_where_the_predictor_is_shared_the_update_is_the_heads(tmp_path: Path) -> None:
    for found in cosines(tmp_path, **{"model.sharing": "predictor"}):
        assert all(each["update"] == each["predictor"] for each in found.values())

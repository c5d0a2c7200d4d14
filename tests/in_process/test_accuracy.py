"""What every algorithm reaches on scikit-learn's digits with the defaults, as the README says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.in_process.grid import run_in_process

CLIENTS = 10


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedgen", "moon+fedgen"])
def test_every_algorithm_reaches_085_on_the_digits(tmp_path: Path, algorithm: str) -> None:
    settings = {"algorithm": algorithm, "experiment": "digits", "server.evaluate-every": 20}
    experiment = run_in_process(settings, CLIENTS, tmp_path)
    last = json.loads((experiment / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["round"] == 20
    assert last["global"]["accuracy"] >= 0.85

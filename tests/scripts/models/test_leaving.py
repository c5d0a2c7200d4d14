"""From a run to a machine that has neither Moonflower nor torch."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from typer.testing import CliRunner

from client_app.app import app as client_app
from common.config import DataSettings
from common.data.sources import SOURCES
from scripts.moonflower.commands import app
from server_app.app import serve
from tests.in_process.grid import FakeClock, InProcessGrid, simulated, task_identity
from tests.settings import make_run_config, make_settings

BARE = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "common", "scripts", "server_app", "client_app"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refused())
for name in ("torch", "common", "scripts"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} is here")
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two rounds on digits."""
    home = tmp_path_factory.mktemp("home")
    overrides = {"num-rounds": 2, "experiment": "demo", "server.min-clients": 3}
    run_config = make_run_config(**overrides)
    fake = FakeClock()
    with mock.patch.dict("os.environ", {"MOONFLOWER_HOME": str(home)}), task_identity():
        grid = InProcessGrid(client_app, simulated(3), run_config, (), fake.clock())
        return serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())


def digits() -> np.ndarray:
    settings: DataSettings = make_settings().data
    return np.asarray(SOURCES["digits"].decode(settings, Path(), "test").x)


def moonflower(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_the_card_s_six_lines_give_the_classes_that_predict_gives(experiment: Path) -> None:
    best = experiment / "best"
    moonflower("export-model", experiment, "--to", "onnx")
    np.savez(best / "examples.npz", x=digits())
    (code,) = re.findall(r"```python\n(.*?)```", (best / "README.md").read_text(), re.DOTALL)
    alone = subprocess.run(
        [sys.executable, "-I", "-c", BARE + code],
        cwd=best,
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    found = json.loads(alone.stdout.replace("'", '"'))
    rows = csv.DictReader(io.StringIO(moonflower("predict", best, best / "examples.npz", "--csv")))
    assert found == [row["class"] for row in rows]
    assert len(set(found)) > 3, "a model that says the same of everything proves nothing"


@pytest.mark.slow
def test_evaluate_gives_the_logged_scores_again(experiment: Path) -> None:
    line = json.loads((experiment / "metrics.jsonl").read_text().splitlines()[-1])
    found = json.loads(moonflower("evaluate", experiment / "final", "--json"))
    logged = {name: value for name, value in line["global"].items() if name != "undefined"}
    assert found["scores"] == logged


@pytest.mark.slow
def test_the_card_counts_sites_and_examples(experiment: Path) -> None:
    settings = json.loads((experiment / "settings.json").read_text())
    count = sum(sum(client["examples-per-label"]) for client in settings["clients"])
    for name in ("best", "final"):
        card = (experiment / name / "README.md").read_text()
        assert "| sites | 3 |" in card
        assert f"| training examples | {count:,}, all sites together |" in card
        assert "client-0000" not in card

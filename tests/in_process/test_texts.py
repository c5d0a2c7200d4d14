"""Texts run as images do: three sites with files of their own, every algorithm, same bits.

Each text says twice what it is about, among words that say nothing; sites hold other labels.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from client_app.app import app
from common.models import load_model, read_saved
from server_app.app import serve
from server_app.clients.gather import StartError
from tests.in_process.grid import FakeClock, InProcessGrid, simulated
from tests.settings import make_run_config

TOPICS = {"moon": "crater", "sea": "wave", "wood": "tree"}
NOISE = ["the", "a", "of", "and", "to", "in", "is", "it", "was", "for", "on", "as", "with", "his"]
TEXTS: dict[str, Any] = {
    "data.source": "text",
    "data.class-names": ",".join(TOPICS),
    "data.num-classes": 3,
    "data.vocabulary-size": 256,
    "data.max-length": 12,
    "model.name": "lstm",
    "num-rounds": 3,
    "train.local-epochs": 2,
    "train.batch-size": 16,
    "train.optimizer": "adam",
    "train.learning-rate": 0.003,
    "server.min-clients": 3,
    "fedgen.server-steps": 5,
}


def write_texts(folder: Path, seed: int, counts: tuple[int, int, int]) -> Path:
    """Write ``train.tsv`` and ``test.tsv`` with so many texts of each topic."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for name in ("train", "test"):
        lines = ["label\ttext"]
        for count, (label, word) in zip(counts, TOPICS.items(), strict=True):
            for _ in range(count):
                words = [label, word, *random.choice(NOISE, int(random.integers(2, 9)))]
                lines.append(f"{label}\t{' '.join(random.permutation(words))}")
        (folder / f"{name}.tsv").write_text("\n".join(lines))
    return folder


def run(tmp_path: Path, **overrides: Any) -> Path:
    """Run three sites, and a server with a test set of its own; return the experiment's folder."""
    run_config = make_run_config(**{**TEXTS, "experiment": "exp", **overrides})
    configs: list[dict[str, str | int]] = []
    for site, counts in enumerate(((40, 10, 2), (2, 40, 10), (10, 2, 40))):
        folder = write_texts(tmp_path / f"site-{site}", site, counts)
        configs.append({"client-name": f"site-{site}", "data-dir": str(folder)})
    home = tmp_path / "moonflower"
    write_texts(home / "data", 9, (20, 20, 20))
    fake = FakeClock()
    with mock.patch.dict(os.environ, {"MOONFLOWER_HOME": str(home)}):
        grid = InProcessGrid(app, configs, run_config, (), fake.clock())
        return serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "algorithm", ["fedavg", pytest.param("moon+fedgen", marks=pytest.mark.slow)]
)
def test_texts_are_learned_at_sites_that_hold_other_labels(algorithm: str, tmp_path: Path) -> None:
    folder = run(tmp_path, algorithm=algorithm)
    assert lines_of(folder)[-1]["global"]["accuracy"] > 0.9
    assert read_saved(folder / "final").spec.kind.facts()["tokenizer"] == "words"
    assert load_model(folder / "best").latent_dim == 256


@pytest.mark.slow
def test_a_resumed_run_with_dropout_and_augmentation_gives_the_bits_of_a_whole_one(
    tmp_path: Path,
) -> None:
    changed = {"algorithm": "moon", "data.augmentation": "token-dropout"}
    whole = run(tmp_path / "whole", **changed)
    run(tmp_path / "cut", **changed, **{"num-rounds": 2})
    resumed = run(tmp_path / "cut", **changed, resume=True)
    weights = [(each / "final/model.safetensors").read_bytes() for each in (whole, resumed)]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_in_a_simulation_texts_are_dealt_out_by_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONFLOWER_HOME", str(tmp_path))
    write_texts(tmp_path / "data", 0, (30, 30, 30))
    shared = {"data.partition": "classes-per-client", "data.classes-per-client": 1}
    changed = {"algorithm": "fedavg", "num-rounds": 1, "experiment": "exp", **shared}
    run_config = make_run_config(**{**TEXTS, **changed})
    fake = FakeClock()
    grid = InProcessGrid(app, simulated(3), run_config, (), fake.clock())
    folder = serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())
    clients = json.loads((folder / "settings.json").read_text())["clients"]
    counts = [client["examples-per-label"] for client in clients]
    # 30 of one label, a tenth of them for validation.
    assert sorted(counts) == [[0, 0, 27], [0, 27, 0], [27, 0, 0]]


def test_a_site_whose_file_is_wrong_is_left_out_with_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_texts(tmp_path / "bad", 0, (3, 3, 3))
    with (folder / "train.tsv").open("a") as file:
        file.write("\nmars\tred dust")
    run_config = make_run_config(**{**TEXTS, "experiment": "exp", "server.min-clients": 1})
    fake = FakeClock()
    configs = [{"client-name": "bad", "data-dir": str(folder)}]
    with mock.patch.dict(os.environ, {"MOONFLOWER_HOME": str(tmp_path / "home")}):
        grid = InProcessGrid(app, configs, run_config, (), fake.clock())
        with pytest.raises(StartError, match=r"line 11: its label is 'mars', .* moon, sea, wood"):
            serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())

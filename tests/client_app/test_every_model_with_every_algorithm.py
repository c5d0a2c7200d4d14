"""Every registered model takes a step with every algorithm."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord

from client_app.optimizer import build_optimizer
from client_app.state import LOCAL_MODEL, ClientState
from client_app.terms import TERMS, Instruction, build_terms
from client_app.training import train
from common import records
from common.config import ALGORITHMS, SERVER_ONLY, Settings
from common.data import ClientData, DataSpec, ExampleSet, TrainBatches
from common.data.targets import ClassLabels
from common.generator import build_generator, generator_to_bytes
from common.models import MODELS, SplitModel, build_model
from common.node import Folders, Node
from common.tasks import build_task
from tests.common.data.kinds.one_of_each import EXAMPLES
from tests.common.models.tiny_encoder import write_encoder
from tests.settings import make_settings

SPECS = {kind: DataSpec("made up", each, ClassLabels(4)) for kind, each in EXAMPLES.items()}
SUMS = [*ALGORITHMS, "moon+fedgen", "fedprox+moon+fedgen"]
SLOW = ("hf-encoder", "resnet50")
"""``transformers`` takes seconds to import."""

PAIRS = [
    pytest.param(name, kind, algorithm, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in sorted(MODELS)
    for kind in MODELS[name].kinds
    for algorithm in SUMS
]


def second_round(
    settings: Settings, model: SplitModel, spec: DataSpec, folder: Path
) -> Instruction:
    """Return an instruction that lets every term act: previous model and generator."""
    generator = build_generator(settings.fedgen, model.outputs, model.latent_dim, 0)
    config = ConfigRecord(
        {
            records.FEDGEN_PRIOR: [0.25] * 4,
            records.FEDGEN_GENERATOR: generator_to_bytes(generator),
        }
    )
    drawn = spec.kind.drawn(4, spec.kind.dtypes[0], np.random.default_rng(0))
    examples = ExampleSet(spec.kind.prepare(torch.from_numpy(drawn)), torch.arange(4))
    state = ClientState(folder, "experiment", "site-a")
    state.keep(LOCAL_MODEL, 1, build_model(settings.model, spec, seed=99).state_dict())
    return Instruction(
        server_round=2,
        settings=settings,
        config=config,
        node=Node("site-a", None, None, torch.device("cpu"), Folders(folder, folder, folder)),
        data=ClientData(lambda: examples, lambda: examples, torch.ones(4, dtype=torch.int64)),
        state=state,
    )


@pytest.mark.parametrize(("name", "kind", "algorithm"), PAIRS)
def test_a_step_changes_encoder_and_predictor(
    name: str, kind: str, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {}
    if name == "hf-encoder":
        monkeypatch.setenv("MOONFLOWER_MODELS_DIR", str(tmp_path))
        digest = write_encoder(tmp_path, vocabulary=299)
        others = {"model.folder": "tiny", "model.folder-sha256": digest}
    take_a_step(tmp_path, name, kind, algorithm, **others)


def take_a_step(tmp_path: Path, name: str, kind: str, algorithm: str, **others: object) -> None:
    overrides = {"model.name": name, "algorithm": algorithm, "fedgen.beta": 1.0, **others}
    settings = make_settings(**overrides, **{"train.momentum": 0.0})  # as scaffold asks for
    model = build_model(settings.model, SPECS[kind], seed=0)
    before = {key: value.clone() for key, value in model.named_parameters()}
    instruction = second_round(settings, model, SPECS[kind], tmp_path)
    terms = build_terms(settings)
    for term in terms:
        term.begin(model, instruction)
    batches = TrainBatches(
        instruction.data.train,
        batch_size=4,
        drop_last=False,
        epochs=1,
        steps=0,
        generator=torch.Generator().manual_seed(0),
    )
    task = build_task(settings)
    metrics = train(
        build_task(settings), model, batches, terms, build_optimizer(model, settings.train, 0.01)
    )
    assert all(math.isfinite(value) for value in metrics.values())
    reported = {*metrics, records.TRAIN_SECONDS}
    assert reported == set(records.train_metrics(task.loss_name, settings.algorithms)), (
        "the server refuses others"
    )
    changed = {k for k, value in model.named_parameters() if not torch.equal(value, before[k])}
    assert any(key.startswith("encoder.") for key in changed)
    assert any(key.startswith("predictor.") for key in changed)


def test_a_deeper_predictor_takes_a_step_too(tmp_path: Path) -> None:
    deeper = {"model.predictor-layers": 2}
    take_a_step(tmp_path, "fedgen-cnn", "image", "moon+fedgen+feddecorr", **deeper)


def test_every_algorithm_has_a_term_but_fedavg_and_the_servers_own() -> None:
    assert {*TERMS, *SERVER_ONLY, "fedavg"} == set(ALGORITHMS)

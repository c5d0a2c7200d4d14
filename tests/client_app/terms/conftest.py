"""A client in the middle of a federation, without Flower."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord
from torch import nn
from torch.nn import functional as F

from client_app.state import ClientState
from client_app.terms import Instruction, Step
from common import records
from common.data import ClientData, ExampleSet
from common.models import SplitModel
from common.node import Folders, Node
from tests.settings import make_settings

CPU = torch.device("cpu")
NUMBERS = {
    "moon.mu": 2.0,
    "fedprox.mu": 0.1,
    "fedgen.alpha": 3.0,
}


def model_of(seed: int) -> SplitModel:
    """Return a small model with BatchNorm, three classes and weights of ``seed``."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.BatchNorm1d(6))
    return SplitModel(encoder, nn.Linear(6, 3), 6, 3)


def step_of(model: SplitModel, data: ClientData, *index: int) -> Step:
    """Return the step that the loop would make of these examples."""
    rows = torch.tensor(index)
    z = model.encoder(data.train.take(rows))
    z.retain_grad()
    logits = model.predictor(z)
    y = data.train.y[rows]
    loss = F.cross_entropy(logits, y)
    return Step(data.train.take(rows), y, rows, z, logits, loss, model)


@pytest.fixture
def instruction(tmp_path: Path) -> Callable[..., Instruction]:
    """Return a maker: ``instruction(server_round, settings={}, client="site-a", **config)``."""
    x = torch.randn(8, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    examples = ExampleSet(x, y)
    data = ClientData(lambda: examples, lambda: examples, torch.tensor([5, 3, 0]))
    folders = Folders(tmp_path / "data", tmp_path / "state", tmp_path / "output")

    def make(
        server_round: int,
        settings: dict[str, Any] | None = None,
        client: str = "site-a",
        **config: Any,
    ) -> Instruction:
        return Instruction(
            server_round=server_round,
            settings=make_settings(**NUMBERS | (settings or {})),
            config=ConfigRecord({records.FEDGEN_PRIOR: [0.5, 0.5, 0.0], **config}),
            node=Node(client, None, None, CPU, folders),
            data=data,
            state=ClientState(folders.state, "experiment", client),
        )

    return make

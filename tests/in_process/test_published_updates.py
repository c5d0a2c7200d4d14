"""The shelf through both apps, against the papers' updates in a bare loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from common.config import Settings
from common.data import data_spec, load_client_data
from common.models import SplitModel, build_model
from common.node import Node
from tests.in_process.grid import simulated
from tests.in_process.test_corrections import CLIENTS, PLAIN, SHORT, batches, equal, final, run
from tests.settings import make_settings

Loss = Callable[[SplitModel, SplitModel, Any, Tensor], Tensor]


def fedavg(net: SplitModel, received: SplitModel, batch: Any, counts: Tensor) -> Tensor:
    return F.cross_entropy(net(batch.x), batch.y)


def fedlc(net: SplitModel, received: SplitModel, batch: Any, counts: Tensor) -> Tensor:
    # tau 2; the softmax is over the classes that the client has.
    held = counts > 0
    scores = torch.exp(net(batch.x)[:, held] - 2 * counts[held] ** -0.25)
    position = held.cumsum(0) - 1
    right = scores[torch.arange(len(batch.y)), position[batch.y]]
    return -(right / scores.sum(dim=1)).log().mean()


def fedrs(net: SplitModel, received: SplitModel, batch: Any, counts: Tensor) -> Tensor:
    logits = net(batch.x)
    return F.cross_entropy(logits * (0.3 + 0.7 * (counts > 0)), batch.y)


def fedntd(net: SplitModel, received: SplitModel, batch: Any, counts: Tensor) -> Tensor:
    logits, taught = net(batch.x), received.eval()(batch.x).detach()
    divergences = []
    for row, teacher, label in zip(logits, taught, batch.y, strict=True):
        others = [c for c in range(len(row)) if c != int(label)]
        p, q = F.softmax(teacher[others] / 2, dim=0), F.softmax(row[others] / 2, dim=0)
        divergences.append((p * (p / q).log()).sum())
    return F.cross_entropy(logits, batch.y) + 3 * torch.stack(divergences).mean()


def feddecorr(net: SplitModel, received: SplitModel, batch: Any, counts: Tensor) -> Tensor:
    z = net.encoder(batch.x)
    # 1e-8 as in the published code: a unit that is the same in the whole batch has no correlation.
    scale = (z.var(dim=0) + 1e-8).sqrt()
    k = torch.cov(z.T) / (scale[:, None] * scale)
    return F.cross_entropy(net.predictor(z), batch.y) + 0.5 * (k**2).sum() / z.shape[1] ** 2


RUNS: dict[str, tuple[Loss, dict[str, Any]]] = {
    "fednova": (fedavg, {"train.momentum": 0.5}),
    "fedlc": (fedlc, {"fedlc.tau": 2.0}),
    "fedrs": (fedrs, {"fedrs.alpha": 0.3}),
    "fedntd": (fedntd, {"fedntd.beta": 3.0, "fedntd.temperature": 2.0}),
    "feddecorr": (feddecorr, {"feddecorr.beta": 0.5}),
}


def trained(
    settings: Settings, node: Node, received: SplitModel, server_round: int, loss: Loss
) -> tuple[list[Tensor], float]:
    """Return what a client makes of the model in a round, and by how many gradients it moved."""
    net, rho = copy.deepcopy(received), settings.train.momentum
    counts = load_client_data(settings, node).label_counts
    w = list(net.parameters())
    velocity = [torch.zeros_like(p) for p in w]
    speed = length = 0.0
    for batch in batches(settings, node, server_round):
        grads = torch.autograd.grad(loss(net.train(), received, batch, counts), w)
        speed = rho * speed + 1
        length += speed
        for p, v, g in zip(w, velocity, grads, strict=True):
            v.mul_(rho).add_(g)
            p.data -= settings.train.learning_rate * v
    return [p.detach() for p in w], length


def reference(settings: Settings, nodes: list[Node], loss: Loss) -> list[Tensor]:
    """Return the global model after all rounds."""
    model = build_model(settings.model, data_spec(settings.data), settings.seed)
    sizes = torch.tensor([float(len(load_client_data(settings, node).train)) for node in nodes])
    p_k = (sizes / sizes.sum()).tolist()
    for server_round in range(1, settings.num_rounds + 1):
        results = [trained(settings, node, model, server_round, loss) for node in nodes]
        lengths = [length for _, length in results]
        if settings.algorithm != "fednova":
            lengths = [1.0 for _ in results]
        effective = sum(p * a for p, a in zip(p_k, lengths, strict=True))
        theta = [p.detach().clone() for p in model.parameters()]
        for i, parameter in enumerate(model.parameters()):
            d = [(theta[i] - w[i]) / a for (w, _), a in zip(results, lengths, strict=True)]
            step = torch.stack([p * each for p, each in zip(p_k, d, strict=True)]).sum(dim=0)
            parameter.data.sub_(effective * step)
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("algorithm", sorted(RUNS))
def test_three_rounds_are_the_published_update(
    tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, numbers = RUNS[algorithm]
    overrides = {"algorithm": algorithm, "data.alpha": 0.5, **numbers}
    found = final(run(tmp_path, **overrides))
    monkeypatch.setenv("MOONFLOWER_HOME", str(tmp_path / "moonflower"))
    nodes = [Node.from_config(config) for config in simulated(CLIENTS)]
    expected = reference(make_settings(**SHORT | overrides), nodes, loss)
    for tensor, wanted in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(tensor, wanted, rtol=0, atol=1e-6)
    # It makes a difference that is far above the tolerance.
    plain = final(run(tmp_path / "fedavg", **{**overrides, "algorithm": "fedavg"}))
    assert max(float((found[n] - plain[n]).abs().max()) for n in found) > 1e-3


def test_fednova_with_equal_steps_is_fedavg(tmp_path: Path) -> None:
    overrides = {**PLAIN, "train.local-epochs": 1, "train.local-steps": 4, "num-rounds": 2}
    one, other = (
        final(run(tmp_path / each, algorithm=each, **overrides)) for each in ("fednova", "fedavg")
    )
    # Up to the rounding of one step more.
    for name in other:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "algorithm",
    ["moon+feddecorr", "fedlc+fednova", "fedgen+fedntd", "feddyn+fedlc", "fedprox+fedrs"],
)
def test_they_add_up(tmp_path: Path, algorithm: str) -> None:
    folders = [
        run(tmp_path / each, algorithm=algorithm, **{"num-rounds": 2, "fedgen.server-steps": 2})
        for each in ("a", "b")
    ]
    one, other = (final(folder) for folder in folders)
    assert equal(one, other)

"""SCAFFOLD and FedDyn through both apps, against the papers' equations in a bare loop."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flwr.app import Message, MetricRecord
from torch import Tensor

from common import records
from common.config import Settings
from common.data import TrainBatches, data_spec, load_client_data
from common.models import build_model, load_model
from common.node import Node
from common.seeding import torch_generator
from common.storage import read_tensors, unpack_tensors
from tests.in_process.grid import (
    FakeClock,
    Fault,
    fails,
    late,
    never,
    run_in_process,
    simulated,
    with_nan,
)
from tests.settings import make_settings

CLIENTS = 3
PLAIN = {"train.momentum": 0.0, "train.weight-decay": 0.0}
SHORT = {
    **PLAIN,
    "num-rounds": 3,
    "train.local-epochs": 2,
    "data.fraction": 0.3,
    "experiment": "exp",
}
BOTH = pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])


def run(tmp_path: Path, clients: int = CLIENTS, faults: Any = (), **overrides: Any) -> Path:
    """Run both apps; a fake clock spares the waiting for those that never answer."""
    clock = FakeClock().clock()
    return run_in_process(SHORT | overrides, clients, tmp_path, faults=faults, clock=clock)


def final(folder: Path) -> dict[str, Tensor]:
    return load_model(folder / "final").state_dict()


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in other)


def batches(settings: Settings, node: Node, server_round: int) -> Iterator[Any]:
    train = settings.train
    return iter(
        TrainBatches(
            load_client_data(settings, node).train,
            batch_size=train.batch_size,
            drop_last=train.drop_last,
            epochs=train.local_epochs,
            steps=train.local_steps,
            generator=torch_generator(settings.seed, "batches", node.name, server_round),
        )
    )


def reference(settings: Settings, nodes: list[Node]) -> list[Tensor]:
    """Return the global model after all rounds, from the papers' equations alone."""
    net = build_model(settings.model, data_spec(settings.data), settings.seed)
    w = list(net.parameters())
    theta, c = [p.detach().clone() for p in w], [torch.zeros_like(p) for p in w]
    own = [[torch.zeros_like(p) for p in w] for _ in nodes]  # c_k of SCAFFOLD, g_k of FedDyn
    sizes = torch.tensor([float(len(load_client_data(settings, node).train)) for node in nodes])
    p_k = sizes / sizes.sum()
    if settings.server.weighting == "uniform":
        p_k = torch.full_like(sizes, 1 / len(nodes))
    lr, alpha = settings.train.learning_rate, settings.feddyn.alpha
    for server_round in range(1, settings.num_rounds + 1):
        mean = [torch.zeros_like(p) for p in theta]
        for k, node in enumerate(nodes):
            for p, t in zip(w, theta, strict=True):
                p.data.copy_(t)
            steps = 0
            for batch in batches(settings, node, server_round):
                grads = torch.autograd.grad(F.cross_entropy(net(batch.x), batch.y), w)
                for p, g, t, o, s in zip(w, grads, theta, own[k], c, strict=True):
                    correction = s - o if settings.algorithm == "scaffold" else -o + alpha * (p - t)
                    p.data -= lr * (g + correction)
                steps += 1
            for i, (p, t) in enumerate(zip(w, theta, strict=True)):
                if settings.algorithm == "scaffold":
                    own[k][i] = own[k][i] - c[i] + (t - p.detach()) / (steps * lr)
                else:
                    own[k][i] = own[k][i] - alpha * (p.detach() - t)
                mean[i] += p_k[k] * p.detach()
        # With all clients in every round, c and h are the means of the clients' own.
        c = [sum(p_k[k] * own[k][i] for k in range(len(nodes))) for i in range(len(w))]  # type: ignore[misc]
        shift = [0.0 * s if settings.algorithm == "scaffold" else s / alpha for s in c]
        theta = [m - s for m, s in zip(mean, shift, strict=True)]
    return theta


@BOTH
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_three_rounds_are_the_papers_equations(
    tmp_path: Path, algorithm: str, weighting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = {"algorithm": algorithm, "server.weighting": weighting}
    found = final(run(tmp_path, **overrides))
    monkeypatch.setenv("MOONFLOWER_HOME", str(tmp_path / "moonflower"))
    nodes = [Node.from_config(config) for config in simulated(CLIENTS)]
    expected = reference(make_settings(**SHORT | overrides), nodes)
    for tensor, wanted in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(tensor, wanted, rtol=0, atol=1e-6)
    # The corrections make a difference that is far above the tolerance.
    fedavg = final(run(tmp_path / "fedavg", **overrides | {"algorithm": "fedavg"}))
    assert max(float((found[n] - fedavg[n]).abs().max()) for n in found) > 1e-3


def test_the_first_round_of_scaffold_is_fedavgs_to_the_bit(tmp_path: Path) -> None:
    one, other = (
        final(run(tmp_path / algorithm, **{"algorithm": algorithm, "num-rounds": 1}))
        for algorithm in ("scaffold", "fedavg")
    )
    assert equal(one, other)


def server_sum(folder: Path) -> tuple[dict[str, Tensor], dict[str, tuple[int, int]]]:
    """Return the sum that the server holds, and each client's last round that counted, weight."""
    newest = max((folder / "checkpoints").iterdir()) / "strategy.safetensors"
    state = {
        name.partition("/")[2]: t for name, t in unpack_tensors(newest.read_bytes())[0].items()
    }
    total = {n.removeprefix("sum."): t for n, t in state.items() if n.startswith("sum.")}
    known = {
        n.removeprefix("client."): (int(t[0]), int(t[1]))
        for n, t in state.items()
        if n.startswith("client.")
    }
    return total, known


def clients_sum(folder: Path, part: str) -> dict[str, Tensor]:
    """Return the sum of what the clients would go on from, read from their disks."""
    total, known = server_sum(folder)
    added = {name: torch.zeros_like(tensor) for name, tensor in total.items()}
    state = folder.parents[1] / "state" / folder.name
    for client, (counted, weight) in known.items():
        newest = max((state / client / part).glob("round-*.safetensors"))
        kept, _ = read_tensors(newest)
        when = "after." if int(kept["round"]) == counted else "before."
        assert counted in (int(kept["round"]), int(kept["counted"]))
        for name in added:
            added[name] += weight * kept[f"{when}{name}"]
    return added


@BOTH
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # What rounding an update leaves out is in the client's own and not in the server's sum: of
    # float16 2**-11 of an update, of int8 1/254 of the largest, each over K lr or times alpha.
    [("float32", 1e-6), ("float16", 2e-3), ("int8", 3e-2)],
)
def test_the_servers_sum_is_that_of_the_clients_own_in_every_wire_dtype(
    tmp_path: Path, algorithm: str, dtype: str, tolerance: float
) -> None:
    folder = run(tmp_path, **{"algorithm": algorithm, "wire.dtype": dtype, "num-rounds": 4})
    total, known = server_sum(folder)
    assert {counted for counted, _ in known.values()} == {4}
    found, expected = (
        torch.cat([t.flatten() for t in each.values()])
        for each in (total, clients_sum(folder, algorithm))
    )
    assert expected.norm() > 0
    assert float((found - expected).norm() / expected.norm()) < tolerance


@BOTH
@pytest.mark.parametrize("fault", [with_nan, fails("disk full"), late(9000.0)])
def test_a_reply_that_does_not_count_is_one_that_was_never_made(
    tmp_path: Path, algorithm: str, fault: Any
) -> None:
    # Refused in rounds 1, 3 and 4: from the start, twice in a row, and the client goes on.
    rounds = {1, 3, 4}
    overrides = {"algorithm": algorithm, "num-rounds": 5}
    changed = run(tmp_path / "a", faults=[Fault(1, fault, rounds=rounds)], **overrides)
    silent = run(tmp_path / "b", faults=[Fault(1, never, rounds=rounds)], **overrides)
    assert [len(line["participants"]) for line in lines_of(changed)] == [2, 3, 2, 2, 3]
    assert equal(final(changed), final(silent))
    total, expected = server_sum(changed)[0], clients_sum(changed, algorithm)
    for name, tensor in total.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-4)


@BOTH
def test_clients_that_sit_rounds_out_stay_in_the_sum(
    tmp_path: Path, algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="moonflower")
    overrides = {"algorithm": algorithm, "num-rounds": 6, "server.fraction-train": 0.5}
    folder = run(tmp_path, clients=4, **overrides)
    total, expected = server_sum(folder)[0], clients_sum(folder, algorithm)
    for name, tensor in total.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-4)
    assert ("10 of 100 clients" in caplog.text) == (algorithm == "scaffold")


def with_steps(value: float) -> Any:
    def change(reply: Message) -> Message:
        records.of_type(reply.content, MetricRecord)[records.METRICS][records.STEPS] = value
        return reply

    return change


@pytest.mark.parametrize("value", [0.0, 1e-30, -4.0, float("nan"), [1.0]])
def test_a_number_of_steps_that_can_not_be_right_is_refused(tmp_path: Path, value: Any) -> None:
    faults = [Fault(1, with_steps(value), rounds={1})]
    first = lines_of(run(tmp_path, faults=faults, algorithm="scaffold", **{"num-rounds": 1}))[0]
    assert first["participants"] == ["client-0000", "client-0002"]
    assert "steps" in first["refused"]["client-0001"]


def test_a_client_that_lost_its_state_says_so_and_begins_from_zero(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(reply: Message) -> Message:
        for path in (tmp_path / "moonflower/state/exp/client-0001/scaffold").iterdir():
            path.unlink()
        return reply

    caplog.set_level(logging.WARNING, logger="moonflower")
    folder = run(tmp_path, faults=[Fault(1, lost, rounds={1})], algorithm="scaffold")
    assert len(lines_of(folder)) == 3
    assert "what this client kept for scaffold in round 1 is gone" in caplog.text


@pytest.mark.parametrize(
    ("algorithm", "overrides"),
    [
        ("scaffold+moon", {}),
        ("fedprox+scaffold", {}),
        ("feddyn+moon", {"train.momentum": 0.9}),
        ("scaffold+fedgen", {"fedgen.server-steps": 2}),
        ("feddyn", {"model.name": "fedgen-cnn"}),
        ("scaffold", {"model.name": "fedgen-cnn", "model.batch-norm-buffers": "local"}),
        ("scaffold", {"model.sharing": "predictor"}),
        ("feddyn", {"model.sharing": "predictor"}),
        ("scaffold", {"server.aggregator": "fedavgm", "server.learning-rate": 0.5}),
    ],
)
def test_they_go_with_other_terms_models_and_sharing(
    tmp_path: Path, algorithm: str, overrides: dict[str, Any]
) -> None:
    folder = run(tmp_path, algorithm=algorithm, **{"num-rounds": 2, **overrides})
    last = lines_of(folder)[-1]
    assert len(last["participants"]) == CLIENTS
    assert set(algorithm.split("+")) <= set(last["train"])
    assert last["train"].get("scaffold", 0.0) == 0.0

"""What ``wire.dtype`` does to a run: bytes, bits, and every algorithm with it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message

from client_app.app import app as client_app
from client_app.state import ClientState
from client_app.uplink import RESIDUAL
from common import records
from common.config import flat
from common.models import load_model
from server_app.rounds.federation import DivergedError
from tests.in_process.grid import Fault, InProcessGrid, run_in_process
from tests.settings import ROOT

SHORT: dict[str, Any] = {
    "num-rounds": 2,
    "train.local-epochs": 1,
    "data.fraction": 0.3,
    "fedgen.server-steps": 3,
    "experiment": "exp",
}
MODEL_BYTES = {
    # mlp: 64x64+64, 64x64+64, 64x32+32, 32x10+10 numbers in 8 arrays, each with 128 bytes before
    "float32": 4 * 10_730 + 8 * 128,
    "float16": 2 * 10_730 + 8 * 128,
    # ... and 8 float32 scales in an array of their own
    "int8": 10_730 + 8 * 128 + 8 * 4 + 128,
}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the final model's state dict."""
    return load_model(folder / "final", allow_private_parts=True).state_dict()


def run(dtype: str, folder: Path, clients: int = 2, **overrides: Any) -> Path:
    """Run both apps."""
    return run_in_process({**SHORT, "wire.dtype": dtype, **overrides}, clients, folder)


@pytest.mark.parametrize(
    ("dtype", "down"), [("float32", "float32"), ("float16", "float16"), ("int8", "float16")]
)
def test_metrics_count_the_bytes_that_travel(tmp_path: Path, dtype: str, down: str) -> None:
    for line in lines_of(run(dtype, tmp_path, algorithm="moon")):
        # The model goes to two clients to train and to two to evaluate; two reply with theirs, and
        # two with counts of their scores, which are packed.
        assert line["bytes"]["sent"] == 4 * MODEL_BYTES[down]
        assert 0 < line["bytes"]["received"] - 2 * MODEL_BYTES[dtype] < 2 * 1000


def halved(folder: Path, clients: int, settings: dict[str, Any]) -> list[float]:
    """Return the bytes of float16 over those of float32 in the last round, both directions."""
    wide, half = (
        lines_of(run_in_process({**settings, "wire.dtype": dtype}, clients, folder / dtype))[-1]
        for dtype in ("float32", "float16")
    )
    return [half["bytes"][way] / wide["bytes"][way] for way in ("sent", "received")]


def test_float16_halves_the_bytes_of_fedgen_and_its_generator(tmp_path: Path) -> None:
    # What is above a half: headers, and the statistics of the generator's BatchNorm.
    for ratio in halved(tmp_path, 2, {**SHORT, "algorithm": "fedgen"}):
        assert 0.5 < ratio < 0.52


@pytest.mark.slow
def test_float16_halves_the_bytes_of_fedgen_on_mnist(
    tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONFLOWER_DATA_DIR", str(real_data))
    preset = (ROOT / "scripts" / "presets" / "fedgen-official.toml").read_text(encoding="utf-8")
    settings = {**flat(tomllib.loads(preset)), "num-rounds": 2, "experiment": "exp"}
    # And on the way up the packed counts of scores, which stay as they are.
    for ratio in halved(tmp_path, 20, settings):
        assert 0.5 < ratio < 0.52


@pytest.mark.parametrize(
    ("dtype", "largest"),
    # One round of two clients moves the weights by up to 0.1; float16 is off by 2**-11 of the
    # start and of the change, an int8 step is 1/127 of the largest change.
    [("float16", 0.002), ("int8", 0.01)],
)
def test_a_round_leads_to_nearly_the_same_model(tmp_path: Path, dtype: str, largest: float) -> None:
    one, other = (
        weights(run(each, tmp_path / each, **{"num-rounds": 1})) for each in ("float32", dtype)
    )
    distances = [float((one[name] - other[name]).abs().max()) for name in one]
    assert 0 < max(distances) < largest


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(
    "overrides",
    [
        {"algorithm": "moon+fedgen", "server.aggregator": "fedavgm"},
        {"algorithm": "fedprox", "server.aggregator": "fedadam", "server.learning-rate": 0.01},
        {"algorithm": "fedgen", "model.batch-norm-buffers": "local"},
        {"algorithm": "fedavg", "server.aggregator": "fedmedian"},
        {"algorithm": "fedavg", "server.aggregator": "fedtrimmedavg", "server.max-update-norm": 9},
        {"algorithm": "moon", "server.aggregator": "multikrum", "server.replies-in-memory-mb": 0},
    ],
    ids=lambda overrides: "-".join(str(value) for value in overrides.values()),
)
def test_every_algorithm_and_aggregator_takes_all_replies(
    tmp_path: Path, overrides: dict[str, Any], dtype: str
) -> None:
    settings = {"model.name": "fedgen-cnn", **overrides}
    for line in lines_of(run(dtype, tmp_path, 3, **settings)):
        assert line["participants"] == [f"client-{n:04d}" for n in range(3)]
        assert line["refused"] == {}
        assert line["update-norm"] > 0


def test_replies_that_wait_on_disk_give_the_bits_of_those_in_memory(tmp_path: Path) -> None:
    on_disk, in_memory = (
        weights(run("int8", tmp_path / str(size), **{"server.replies-in-memory-mb": size}))
        for size in (0, 512)
    )
    assert all(torch.equal(on_disk[name], in_memory[name]) for name in on_disk)


def test_the_server_keeps_its_model_in_float32(tmp_path: Path) -> None:
    final = weights(run("float16", tmp_path))
    assert {tensor.dtype for tensor in final.values()} == {torch.float32}
    assert any(not torch.equal(t, t.half().float()) for t in final.values())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_client_killed_while_it_keeps_its_residual_gives_the_same_bits_when_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    # With three replies wanted, the round is played again with all clients.
    overrides = {"algorithm": "moon", "num-rounds": 3, "server.min-replies": 3}
    steady = weights(run("int8", tmp_path / "steady", 3, **overrides))
    keep, killed = ClientState.keep, []

    def dying(self: ClientState, part: str, server_round: int, *rest: Any) -> None:
        due = part == RESIDUAL and server_round == 2 and not killed
        if not due or after:
            keep(self, part, server_round, *rest)
        if due:
            killed.append(self.folder.name)
            raise RuntimeError("killed")

    monkeypatch.setattr(ClientState, "keep", dying)
    found = weights(run("int8", tmp_path / "killed", 3, **overrides))
    assert len(killed) == 1
    assert all(torch.equal(found[name], steady[name]) for name in steady)


def test_without_the_residual_the_bits_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = weights(run("int8", tmp_path / "steady"))
    kept = ClientState.kept

    def forgetful(
        self: ClientState, part: str, *args: Any, **kwargs: Any
    ) -> list[dict[str, torch.Tensor]]:
        return [] if part == RESIDUAL else kept(self, part, *args, **kwargs)

    monkeypatch.setattr(ClientState, "kept", forgetful)
    found = weights(run("int8", tmp_path / "forgetful"))
    assert any(not torch.equal(found[name], steady[name]) for name in steady)


def with_scale(value: float) -> Callable[[Message], Message]:
    """Return a change of a reply whose first scale becomes ``value``."""

    def change(reply: Message) -> Message:
        arrays = dict(reply.content.array_records[records.ARRAYS])
        scales = arrays[records.SCALES].numpy().copy()
        scales[0] = value
        reply.content[records.ARRAYS] = ArrayRecord({**arrays, records.SCALES: Array(scales)})
        return reply

    return change


def test_a_malformed_reply_is_left_out_with_the_reason_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    settings = {**SHORT, "wire.dtype": "int8"}
    faults = [
        Fault(0, with_scale(-1.0), rounds={1}),
        Fault(1, with_scale(np.nan), rounds={2}),
    ]
    first, second = lines_of(run_in_process(settings, 3, tmp_path, faults=faults))
    assert list(first["refused"]) == ["client-0000"]
    assert "scale of array 'encoder" in first["refused"]["client-0000"]
    assert "is -1.0" in first["refused"]["client-0000"]
    assert list(second["refused"]) == ["client-0001"]
    assert "is nan" in second["refused"]["client-0001"]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_client_that_diverged_says_so_and_is_back_in_the_next_round(
    tmp_path: Path, dtype: str
) -> None:
    def diverging(message: Message, context: Context) -> Message:
        config = message.content.config_records.get(records.CONFIG, {})
        trains = message.metadata.message_type == records.TRAIN
        if trains and config[records.ROUND] == 1 and context.node_config["partition-id"] == 1:
            context.run_config["train.learning-rate"] = 1e30
        return client_app(message, context)

    settings = {**SHORT, "algorithm": "moon", "wire.dtype": dtype}
    first, second = lines_of(run_in_process(settings, 2, tmp_path, client_app=diverging))
    assert "NaN or infinity" in first["refused"]["client-0001"]
    assert second["participants"] == ["client-0000", "client-0001"]


def test_a_global_model_that_float16_can_not_hold_ends_the_run_with_the_reason(
    tmp_path: Path,
) -> None:
    def far_away(message: Message, context: Context) -> Message:
        if message.metadata.message_type != records.TRAIN:
            return client_app(message, context)
        # Its own training must not overflow; then it says that all has grown by 40,000.
        context.run_config["train.learning-rate"] = 1e-30
        reply = client_app(message, context)
        arrays = dict(reply.content.array_records[records.ARRAYS])
        grown = {n: Array(np.full_like(array.numpy(), 40_000)) for n, array in arrays.items()}
        reply.content[records.ARRAYS] = ArrayRecord(grown)
        return reply

    settings = {**SHORT, "wire.dtype": "float16", "server.fraction-evaluate": 0.0}
    settings |= {"algorithm": "fedavg", "num-rounds": 3}
    with pytest.raises(DivergedError, match="a float16 holds up to 65504"):
        run_in_process(settings, 2, tmp_path, client_app=far_away)


def test_only_small_arrays_are_on_the_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {"down": set(), "up": set()}
    deliver = InProcessGrid._deliver

    def watched(self: InProcessGrid, instruction: Message) -> None:
        for record in records.of_type(instruction.content, ArrayRecord).values():
            seen["down"] |= {f"{array.dtype}" for array in record.values()}
        deliver(self, instruction)

    def noted(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        for record in records.of_type(reply.content, ArrayRecord).values():
            seen["up"] |= {array.dtype for name, array in record.items() if name != records.SCALES}
        return reply

    monkeypatch.setattr(InProcessGrid, "_deliver", watched)
    run_in_process({**SHORT, "wire.dtype": "int8"}, 2, tmp_path, client_app=noted)
    assert seen == {"down": {"float16"}, "up": {"int8"}}

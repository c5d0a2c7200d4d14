"""What a client keeps, seen through both apps."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message

from client_app.app import app as client_app
from common import records
from common.models import load_model
from common.storage import read_tensors
from tests.in_process.grid import run_in_process

SHORT = {
    "algorithm": "moon",
    "num-rounds": 2,
    "train.local-epochs": 1,
    "data.fraction": 0.3,
    "experiment": "exp",
}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the final model's state dict."""
    return load_model(folder / "final").state_dict()


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_client_whose_disk_fails_says_so_and_keeps_its_former_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    real = getattr(os, call)
    kept = tmp_path / "moonflower" / "state" / "exp" / "client-0001"

    def failing(target: Any, *args: Any) -> Any:
        path = str(Path(f"/proc/self/fd/{target}").readlink() if call == "fsync" else target)
        if str(kept) in path and "round-000002" in path:
            raise OSError(number, os.strerror(number))
        return real(target, *args)

    monkeypatch.setattr(os, call, failing)
    folder = run_in_process(SHORT, 2, tmp_path)
    second = lines_of(folder)[1]
    assert second["participants"] == ["client-0000"]
    assert os.strerror(number) in second["refused"]["client-0001"]
    assert "round-000002" in second["refused"]["client-0001"]
    assert {path.name for path in kept.iterdir()} - {".lock"} == {"round-000001.safetensors"}
    read_tensors(kept / "round-000001.safetensors")  # whole


def test_state_of_a_deleted_experiment_is_not_used_by_a_new_one_of_that_name(
    tmp_path: Path,
) -> None:
    shutil.rmtree(run_in_process({**SHORT, "seed": 5}, 2, tmp_path / "used"))
    reused = run_in_process({**SHORT, "seed": 6}, 2, tmp_path / "used")
    fresh = run_in_process({**SHORT, "seed": 6}, 2, tmp_path / "fresh")
    one, other = weights(reused), weights(fresh)
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert lines_of(reused)[0]["train"]["moon"] == 0


def test_state_of_another_model_is_an_error_of_that_client_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_app.state import ClientState

    keep = ClientState.keep

    def shrunk(
        self: ClientState, part: str, n: int, tensors: dict[str, torch.Tensor], rounds: int
    ) -> None:
        if self.folder.name == "client-0001":
            tensors = {name: tensor[:1] for name, tensor in tensors.items()}
        keep(self, part, n, tensors, rounds)

    monkeypatch.setattr(ClientState, "keep", shrunk)
    second = lines_of(run_in_process(SHORT, 2, tmp_path))[1]
    assert second["participants"] == ["client-0000"]
    assert "is of another model" in second["refused"]["client-0001"]
    assert "round-000001.safetensors" in second["refused"]["client-0001"]


@pytest.mark.parametrize(
    "overrides",
    [{}, {"algorithm": "fedavg", "model.name": "fedgen-cnn", "model.batch-norm-buffers": "local"}],
    ids=["previous models", "local buffers"],
)
def test_a_client_that_diverged_in_one_round_is_back_in_the_next(
    tmp_path: Path, overrides: dict[str, Any]
) -> None:
    def diverging(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 1:
            config = message.content.config_records[records.CONFIG]
            if message.metadata.message_type == records.TRAIN and config[records.ROUND] == 1:
                context.run_config["train.learning-rate"] = 1e30
        return client_app(message, context)

    first, second = lines_of(run_in_process(SHORT | overrides, 2, tmp_path, client_app=diverging))
    assert "NaN or infinity" in first["refused"]["client-0001"]
    assert first["evaluation"]["refused"] == {}
    assert second["participants"] == ["client-0000", "client-0001"]
    assert second["evaluation"]["refused"] == {}

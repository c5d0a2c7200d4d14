"""What a machine is told: folders, name, device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from common.config import SettingsError
from common.node import Folders, Node, choose_device


def test_node_config_comes_before_the_environment_and_that_before_the_home(
    monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    monkeypatch.setenv("MOONFLOWER_DATA_DIR", "/environment/data")
    monkeypatch.setenv("MOONFLOWER_STATE_DIR", "/environment/state")
    folders = Folders.find({"data-dir": "/node/data"})
    assert folders.data == Path("/node/data")
    assert folders.state == Path("/environment/state")
    assert folders.output == own_folders / "output"
    assert not own_folders.exists(), "nothing is created"


@pytest.mark.parametrize(
    ("config", "variable", "name"),
    [
        ({"client-name": "site-a", "partition-id": 3}, "site-b", "site-a"),
        ({"partition-id": 3, "num-partitions": 10}, "site-b", "site-b"),
        ({"partition-id": 3, "num-partitions": 10}, "", "client-0003"),
    ],
)
def test_a_client_is_named_by_node_config_environment_or_partition(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], variable: str, name: str
) -> None:
    monkeypatch.setenv("MOONFLOWER_CLIENT_NAME", variable)
    node = Node.from_config(config)
    assert node.name == name
    assert node.partition_id == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "neither a name nor a partition"),
        ({"client-name": "../up"}, "client name '../up' can't be used"),
        ({"partition-id": "3"}, "partition-id = '3': a whole number"),
        ({"partition-id": -1}, "partition-id = -1: a whole number"),
        ({"partition-id": 0, "num-partitions": True}, "num-partitions = True"),
        ({"client-name": "a", "device": "gpu"}, "device 'gpu' is unknown"),
        ({"client-name": "a", "device": "meta"}, "device 'meta' is unknown"),
        ({"client-name": "a", "data-dir": "~nobody-of-this-name/x"}, "Give a path without '~'"),
    ],
)
def test_a_node_config_that_can_t_be_used_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Node.from_config(config)
    assert message in str(caught.value)


@pytest.mark.parametrize("has_cuda", [True, False])
def test_the_device_is_cuda_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, *, has_cuda: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert choose_device() == torch.device("cuda" if has_cuda else "cpu")
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cpu")
    assert choose_device() == torch.device("cpu")


def test_cuda_where_there_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="torch sees no CUDA device"):
        choose_device("cuda:1")


def test_a_cuda_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(SettingsError, match="torch sees 2 CUDA devices"):
        choose_device("cuda:2")


def test_without_a_home_the_folders_may_all_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MOONFLOWER_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    for name in ("DATA", "STATE", "OUTPUT"):
        monkeypatch.setenv(f"MOONFLOWER_{name}_DIR", f"/there/{name}")
    assert Folders.find().data == Path("/there/DATA")


def test_a_node_chooses_its_model_by_node_config_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = {"client-name": "site-a"}
    monkeypatch.delenv("MOONFLOWER_MODEL_NAME", raising=False)
    assert Node.from_config(node).model_name == ""
    monkeypatch.setenv("MOONFLOWER_MODEL_NAME", "mlp")
    assert Node.from_config(node).model_name == "mlp"
    assert Node.from_config({**node, "model-name": "fedgen-cnn"}).model_name == "fedgen-cnn"

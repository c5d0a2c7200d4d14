"""Data sets that tests write themselves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from common.node import Folders, Node

MakeNode = Callable[..., Node]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(data=tmp_path / "data", state=tmp_path / "state", output=tmp_path / "output")
    made.data.mkdir()
    return made


@pytest.fixture
def make_node(folders: Folders) -> MakeNode:
    def make(partition_id: int | None = 0, num_partitions: int | None = 4) -> Node:
        name = "site-a" if partition_id is None else f"client-{partition_id:04d}"
        return Node(name, partition_id, num_partitions, torch.device("cpu"), folders)

    return make


def write_mnist(root: Path, train: NDArray[np.uint8], test: NDArray[np.uint8]) -> None:
    """Write idx files: the images of label ``l`` are filled with the value ``20 * l``."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for part, labels in (("train", train), ("t10k", test)):
        images = np.repeat(labels * np.uint8(20), 28 * 28)
        header = struct.pack(">IIII", 2051, len(labels), 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">II", 2049, len(labels))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


@pytest.fixture
def synthetic_mnist(folders: Folders) -> Folders:
    """100 training images, 10 of each digit in order, and 40 test images, 4 of each."""
    digits = np.arange(10, dtype=np.uint8)
    write_mnist(folders.data, digits.repeat(10), digits.repeat(4))
    return folders

"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 from a folder laid out for torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.sources.base import Identity, Split, identity_of

DOWNLOAD_TIMEOUT = 3600.0
"""Seconds to wait for another process of this machine that downloads the same data set."""


class _Layout(NamedTuple):
    torchvision_class: str
    folder: str
    files: tuple[str, ...]


_MNIST_FILES = tuple(
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
_LAYOUTS = {
    "mnist": _Layout("MNIST", "MNIST/raw", _MNIST_FILES),
    "fashion-mnist": _Layout("FashionMNIST", "FashionMNIST/raw", _MNIST_FILES),
    "cifar10": _Layout(
        "CIFAR10",
        "cifar-10-batches-py",
        (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"),
    ),
    "cifar100": _Layout("CIFAR100", "cifar-100-python", ("train", "test", "meta")),
}


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity:
    """Return the identity of the files, after a download where that is allowed and needed.

    Raises
    ------
    DataError
        Names the missing files, the folder and the switch ``data.download``.
    """
    layout = _LAYOUTS[settings.source]
    paths = [folder / layout.folder / name for name in layout.files]
    if not _all_files(paths) and settings.download:
        _download(layout, settings.source, folder, paths)
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise DataError(
            f"data set {settings.source!r} was looked for in {folder} and not found: "
            f"{folder / layout.folder} lacks {', '.join(missing)}. Point MOONFLOWER_DATA_DIR (or "
            "data-dir of the node config) at the folder that holds it, or set data.download=true "
            "to fetch it there"
        )
    return identity_of(paths)


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read one split with torchvision.

    Raises
    ------
    DataError
        The files are there but torchvision can't read them.
    """
    layout = _LAYOUTS[settings.source]
    try:
        stored = _open(layout, folder, train=split == "train", download=False)
        images, labels = np.asarray(stored.data), np.asarray(stored.targets, dtype=np.int64)
    # AssertionError: what torchvision raises for an MNIST file with a wrong header.
    except (OSError, RuntimeError, ValueError, AssertionError, EOFError, KeyError) as error:
        raise DataError(
            f"data set {settings.source!r} in {folder / layout.folder} can't be read: "
            f"{error or type(error).__name__}. Delete that folder, then lay it out anew or fetch "
            "it with data.download=true"
        ) from error
    if images.ndim == 3:
        images = images[:, None]
    else:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return Arrays(images, labels)


def _all_files(paths: list[Path]) -> bool:
    return all(path.is_file() for path in paths)


def _open(layout: _Layout, folder: Path, *, train: bool, download: bool) -> Any:
    import torchvision

    dataset_class = getattr(torchvision.datasets, layout.torchvision_class)
    return dataset_class(root=str(folder), train=train, download=download)


def _download(layout: _Layout, source: str, folder: Path, paths: list[Path]) -> None:
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Simulated clients share the folder: one of them downloads, the others wait for it.
        with FileLock(folder / f".{source}.lock", timeout=DOWNLOAD_TIMEOUT):
            if not _all_files(paths):
                _open(layout, folder, train=True, download=True)
    except (OSError, RuntimeError, Timeout) as error:
        raise DataError(
            f"data set {source!r} could not be downloaded to {folder}: {error}. Check the network "
            "and the folder, or lay the files out there yourself"
        ) from error

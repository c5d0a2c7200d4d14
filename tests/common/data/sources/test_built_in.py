from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.data import DataError
from common.node import Folders
from tests.common.data.conftest import write_mnist
from tests.common.data.sources.loading import load, source


def test_digits_keep_a_fifth_of_every_label_for_the_test_set(folders: Folders) -> None:
    train, test = (load(source("digits"), folders, split) for split in ("train", "test"))
    assert len(train.y) + len(test.y) == 1797
    share = np.bincount(test.y) / (np.bincount(train.y) + np.bincount(test.y))
    assert share == pytest.approx(0.2, abs=0.005)
    assert (train.x.dtype, train.x.min(), train.x.max()) == (np.uint8, 0, 16)
    assert train.x.shape[1:] == (1, 8, 8)


def test_digits_in_both_splits_make_up_the_whole_set(folders: Folders) -> None:
    from sklearn.datasets import load_digits

    train, test = (load(source("digits"), folders, split) for split in ("train", "test"))
    both = np.concatenate([train.x, test.x]).reshape(-1, 64)
    assert sorted(both.tolist()) == sorted(load_digits().data.astype(int).tolist())


def test_mnist_is_read_from_idx_files(synthetic_mnist: Folders) -> None:
    train, test = (load(source("mnist"), synthetic_mnist, split) for split in ("train", "test"))
    assert (train.x.shape, test.x.shape) == ((100, 1, 28, 28), (40, 1, 28, 28))
    assert (train.x[:, 0, 13, 13] == 20 * train.y).all()
    assert np.bincount(test.y).tolist() == [4] * 10


def test_a_missing_data_set_names_folder_and_switch(folders: Folders) -> None:
    with pytest.raises(DataError, match=r"(?s)'mnist'.*data\.download=true") as caught:
        load(source("mnist"), folders)
    assert str(folders.data / "MNIST" / "raw") in str(caught.value)
    assert "train-images-idx3-ubyte" in str(caught.value)
    assert "MOONFLOWER_DATA_DIR" in str(caught.value)


def test_one_missing_file_is_named(synthetic_mnist: Folders) -> None:
    (synthetic_mnist.data / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="lacks t10k-labels-idx1-ubyte"):
        load(source("mnist"), synthetic_mnist)


def test_a_truncated_file_is_reported_as_unreadable(synthetic_mnist: Folders) -> None:
    path = synthetic_mnist.data / "MNIST/raw/train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match="can't be read"):
        load(source("mnist"), synthetic_mnist)


def test_damaged_cifar10_is_reported_as_unreadable(folders: Folders) -> None:
    base = folders.data / "cifar-10-batches-py"
    base.mkdir()
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"):
        (base / name).write_bytes(b"not the real file")
    with pytest.raises(DataError, match=r"'cifar10'.*can't be read"):
        load(source("cifar10"), folders)


def test_a_missing_data_set_is_downloaded_where_that_is_allowed(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision

    def fake_download(self: torchvision.datasets.MNIST) -> None:
        write_mnist(Path(self.root), np.arange(10, dtype=np.uint8), np.arange(3, dtype=np.uint8))

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", fake_download)
    assert load(source("mnist", download=True), folders).y.tolist() == list(range(10))


def test_a_failed_download_names_the_folder(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision

    def fail(self: torchvision.datasets.MNIST) -> None:
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", fail)
    with pytest.raises(DataError, match=r"could not be downloaded.*Error downloading") as caught:
        load(source("mnist", download=True), folders)
    assert str(folders.data) in str(caught.value)


def test_nothing_is_downloaded_without_the_switch(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision

    def fail(self: torchvision.datasets.MNIST) -> None:
        raise AssertionError("downloaded")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", fail)
    with pytest.raises(DataError):
        load(source("mnist"), folders)


def test_real_mnist_has_its_published_counts(real_data: Path, folders: Folders) -> None:
    real = Folders(real_data, folders.state, folders.output)
    train, test = (load(source("mnist"), real, split) for split in ("train", "test"))
    # yann.lecun.com/exdb/mnist: 60,000 and 10,000; 5,421 fives and 6,742 ones are well known.
    assert (len(train.y), len(test.y)) == (60_000, 10_000)
    assert (train.y == 5).sum() == 5421
    assert (train.y == 1).sum() == 6742


def test_real_cifar10_has_5000_of_each_class_and_its_known_mean(
    real_data: Path, folders: Folders
) -> None:
    if not (real_data / "cifar-10-batches-py").is_dir():
        pytest.skip("CIFAR-10 is not laid out in MOONFLOWER_TEST_DATA")
    train = load(source("cifar10"), Folders(real_data, folders.state, folders.output))
    assert np.bincount(train.y).tolist() == [5000] * 10
    assert train.x.mean(axis=(0, 2, 3)) == pytest.approx([125.3, 123.0, 113.9], abs=0.1)

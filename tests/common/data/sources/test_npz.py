from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import pytest

from common.data import DataError
from common.data.prepared import load_split
from common.node import Folders
from tests.common.data.sources.loading import load, site


@pytest.mark.parametrize(
    ("shape", "stored"),
    [
        ("1x6x5", (8, 6, 5)),
        ("1x6x5", (8, 6, 5, 1)),
        ("1x6x5", (8, 1, 6, 5)),
        ("3x6x5", (8, 6, 5, 3)),
        ("3x6x5", (8, 3, 6, 5)),
    ],
)
def test_npz_images_may_have_channels_first_last_or_not_at_all(
    folders: Folders, shape: str, stored: tuple[int, ...]
) -> None:
    channels = int(shape[0])
    wanted = np.random.default_rng(0).integers(0, 256, (8, channels, 6, 5), dtype=np.uint8)
    is_first = stored[1:] == (channels, 6, 5)
    images = wanted if is_first else wanted.transpose(0, 2, 3, 1).reshape(stored)
    np.savez(folders.data / "train.npz", x=images, y=np.arange(8)[:, None] % 2)
    arrays = load(site("npz", shape), folders)
    assert (arrays.x == wanted).all()
    assert arrays.y.tolist() == [0, 1] * 4


def test_npz_floats_are_kept_as_float32(folders: Folders) -> None:
    images = np.linspace(0, 1, 60).reshape(2, 6, 5)
    np.savez(folders.data / "data.npz", x=images, y=[0, 1])
    arrays = load(site("npz"), folders)
    assert arrays.x.dtype == np.float32
    assert arrays.x.ravel() == pytest.approx(images.ravel(), abs=1e-7)


@pytest.mark.parametrize("value", [1 + 1.2e-7, -1e-7])
def test_floats_may_lie_outside_by_a_rounding(folders: Folders, value: float) -> None:
    images = np.full((2, 6, 5), value, dtype=np.float32)
    np.savez(folders.data / "train.npz", x=images, y=[0, 1])
    assert load(site("npz"), folders).x[0, 0, 0, 0] == np.float32(value)


def test_black_images_are_bytes_like_others(folders: Folders) -> None:
    np.savez(folders.data / "train.npz", x=GOOD, y=LABELS)
    assert load(site("npz"), folders).x.max() == 0


GOOD = np.zeros((4, 6, 5), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1])
NAN = np.where(np.arange(120).reshape(4, 6, 5) == 70, np.nan, 0.5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GOOD, "y": LABELS + 1}, r"2 labels lie outside 0 to 1, the first is 2 at row 1"),
        ({"x": GOOD, "y": LABELS - 1}, r"2 labels lie outside 0 to 1, the first is -1 at row 0"),
        ({"x": GOOD, "y": LABELS[:3]}, r"\[4, 1, 6, 5\] and 3 labels"),
        ({"x": GOOD, "y": LABELS.astype(float)}, r"'y' must be whole numbers.*float64"),
        ({"x": GOOD, "labels": LABELS}, r"'x' and 'y' are needed, found \['labels', 'x'\]"),
        ({"x": GOOD.transpose(0, 2, 1), "y": LABELS}, r"shape \[4, 5, 6\].*image-shape is 1x6x5"),
        ({"x": GOOD.astype(np.int64), "y": LABELS}, r"'x' is int64; allowed are uint8"),
        ({"x": NAN, "y": LABELS}, r"1 images have a NaN or an infinity, the first is at row 2"),
        ({"x": np.full(GOOD.shape, np.inf), "y": LABELS}, r"4 images have a NaN or an infinity"),
        ({"x": GOOD + 1.5, "y": LABELS}, r"must lie in \[0, 1\].*found 1\.5 to 1\.5"),
        (
            {"x": np.full(GOOD.shape, 1.00001), "y": LABELS},
            r"in \[0, 1\] \(within 1e-06\), found 1\.00001\d* to 1\.00001\d*\.",
        ),
        ({"x": np.full(GOOD.shape, -0.001), "y": LABELS}, r"found -0\.001\d* to"),
        ({"x": (GOOD + 1), "y": LABELS}, r"the largest byte of all images is 1.*multiply by 255"),
        ({"x": GOOD, "y": np.array([None] * 4)}, r"can't be read as a NumPy archive"),
    ],
)
def test_npz_that_no_model_can_train_on_is_refused(
    folders: Folders, arrays: dict[str, Any], message: str
) -> None:
    np.savez(folders.data / "train.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load(site("npz"), folders)


def test_a_file_that_is_no_archive_is_refused(folders: Folders) -> None:
    (folders.data / "train.npz").write_bytes(b"PK\x03\x04 this is not a zip file")
    with pytest.raises(DataError, match=r"train\.npz can't be read as a NumPy archive"):
        load(site("npz"), folders)


def test_a_single_array_is_refused_with_what_to_write_instead(folders: Folders) -> None:
    with (folders.data / "train.npz").open("wb") as file:
        np.save(file, GOOD)
    with pytest.raises(DataError, match=r"holds a single array.*np\.savez"):
        load(site("npz"), folders)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"no array", r"'x' is \|S8; allowed are"),
        # An unfinished header: NumPy's parser raises a tokenize.TokenError.
        (b"\x93NUMPY\x01\x00\x07\x00((((((\n", "can't be read as a NumPy archive"),
    ],
)
def test_a_member_that_is_no_array_is_refused(
    folders: Folders, member: bytes, message: str
) -> None:
    with (folders.data / "train.npz").open("wb") as file:
        np.savez(file, y=LABELS)
    with zipfile.ZipFile(folders.data / "train.npz", "a") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(DataError, match=message):
        load(site("npz"), folders)


def test_an_archive_that_claims_more_than_memory_is_refused(folders: Folders) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000, 6, 5)}\n"
    claim = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with (folders.data / "train.npz").open("wb") as file:
        np.savez(file, y=LABELS)
    with zipfile.ZipFile(folders.data / "train.npz", "a") as archive:
        archive.writestr("x.npy", claim)
    with pytest.raises(DataError, match="can't be read as a NumPy archive"):
        load(site("npz"), folders)


def test_a_damaged_compressed_archive_is_refused(folders: Folders) -> None:
    path = folders.data / "train.npz"
    noise = np.random.default_rng(0).integers(0, 256, (50, 6, 5), dtype=np.uint8)
    np.savez_compressed(path, x=noise, y=np.zeros(50, dtype=np.int64))
    whole = path.read_bytes()
    for position in range(60, 600, 60):  # in the compressed images
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 255]) + whole[position + 1 :])
        with pytest.raises(DataError, match=r"train\.npz can't be read as a NumPy archive"):
            load(site("npz"), folders)


def test_a_site_without_npz_is_told_where_it_was_looked_for(folders: Folders) -> None:
    with pytest.raises(DataError, match=r"train\.npz or data\.npz.*data-dir") as caught:
        load(site("npz"), folders)
    assert str(folders.data) in str(caught.value)


def test_a_site_without_test_npz_has_no_test_set(folders: Folders) -> None:
    assert load_split(site("npz"), folders, "test") is None

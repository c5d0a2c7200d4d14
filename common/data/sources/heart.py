"""UCI heart disease at its four hospitals: 920 patients; each hospital is a client.

Collected by Andras Janosi, M.D. (Hungarian Institute of Cardiology, Budapest), William Steinbrunn,
M.D. (University Hospital, Zurich), Matthias Pfisterer, M.D. (University Hospital, Basel) and Robert
Detrano, M.D., Ph.D. (V.A. Medical Center, Long Beach, and Cleveland Clinic Foundation); 1989,
https://doi.org/10.24432/C52P4X, CC BY 4.0.

UCI's own ``processed.*.data`` lie in ``heart/`` of the data folder. To predict is whether there is
a disease (``num`` above 0). ``?`` is a missing value, and so is a cholesterol or blood pressure of
0, which nobody alive has. All are training examples: each hospital validates on a part of its own.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.sites import Sites
from common.data.sources.base import Identity, Split, identity_of
from common.files import sha256, write_folder

ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease"
TIMEOUT = 60.0
"""Seconds to wait for UCI's server to answer."""
_LOCK_TIMEOUT = 600.0

HOSPITALS = {
    "cleveland": (
        "processed.cleveland.data",
        "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    ),
    "hungary": (
        "processed.hungarian.data",
        "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    ),
    "switzerland": (
        "processed.switzerland.data",
        "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    ),
    "long-beach": (
        "processed.va.data",
        "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
    ),
}
"""File and SHA-256 of each, in the order of partition ids."""

_COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
NUMERIC = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
CATEGORICAL = {
    "sex": (0, 1),
    "cp": (1, 2, 3, 4),
    "fbs": (0, 1),
    "restecg": (0, 1, 2),
    "exang": (0, 1),
    "slope": (1, 2, 3),
    "thal": (3, 6, 7),
}
_NEVER_ZERO = ("trestbps", "chol")


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity | None:
    """Return the identity of the hospitals' files that are there; there is no test set.

    They are downloaded where that is allowed and none is there: a hospital may have its own only.

    Raises
    ------
    DataError
        None is there.
    """
    if split == "test":
        return None
    paths = _present(folder)
    if not paths and settings.download:
        _download(folder)
        paths = _present(folder)
    if not paths:
        raise DataError(
            f"data set 'heart' was looked for in {folder / 'heart'} and not found: put "
            f"{', '.join(name for name, _ in HOSPITALS.values())} there (a hospital needs its own "
            f"only) from {ADDRESS}, or set data.download=true to fetch them"
        )
    return identity_of(paths)


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read the hospitals that are there.

    Raises
    ------
    DataError
        A file is not UCI's.
    """
    rows, sites = [], []
    for number, (name, (file, digest)) in enumerate(HOSPITALS.items()):
        path = folder / "heart" / file
        if not path.is_file():
            continue
        blob = path.read_bytes()
        if sha256(blob) != digest:
            raise DataError(
                f"{path} is not UCI's file of {name}: its SHA-256 is {sha256(blob)}, expected "
                f"{digest}. Delete it, then fetch it anew with data.download=true"
            )
        found = _table(blob)
        rows.append(found)
        sites += [number] * len(found)
    table = dict(zip(_COLUMNS, np.concatenate(rows).T, strict=True))
    for column in _NEVER_ZERO:
        table[column] = np.where(table[column] == 0, np.nan, table[column])
    numbers = [table[column] for column in NUMERIC]
    codes = [_codes(table[column], values) for column, values in CATEGORICAL.items()]
    return Arrays(
        np.stack([*numbers, *codes], axis=1).astype(np.float32),
        (table["num"] > 0).astype(np.int64),
        Sites(tuple(HOSPITALS), np.array(sites, dtype=np.int64)),
    )


def _present(folder: Path) -> list[Path]:
    paths = (folder / "heart" / name for name, _ in HOSPITALS.values())
    return [path for path in paths if path.is_file()]


def _table(blob: bytes) -> NDArray[np.float64]:
    rows = csv.reader(blob.decode("ascii").splitlines())
    return np.array([[np.nan if cell == "?" else float(cell) for cell in row] for row in rows])


def _codes(column: NDArray[np.float64], values: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the number of each category; a missing one stays NaN."""
    codes = np.searchsorted(values, column).astype(np.float64)
    return np.where(np.isnan(column), np.nan, codes)


def _download(folder: Path) -> None:
    from filelock import FileLock, Timeout

    target = folder / "heart"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Simulated clients share the folder: one of them downloads, the others wait for it. The
        # files appear together, or a client would take the first ones for all that there are.
        with FileLock(folder / ".heart.lock", timeout=_LOCK_TIMEOUT):
            if not _present(folder):
                write_folder(target, {file[0]: _fetched(*file) for file in HOSPITALS.values()})
    except (OSError, Timeout) as error:
        raise DataError(
            f"data set 'heart' could not be downloaded to {target}: {error}. Check the network and "
            "the folder, or put the files there yourself"
        ) from error


def _fetched(name: str, digest: str) -> bytes:
    from urllib.request import urlopen

    with urlopen(f"{ADDRESS}/{name}", timeout=TIMEOUT) as answer:  # noqa: S310
        blob: bytes = answer.read()
    if sha256(blob) != digest:
        raise DataError(
            f"{ADDRESS}/{name} is not the file that was expected: its SHA-256 is {sha256(blob)} "
            f"instead of {digest}"
        )
    return blob

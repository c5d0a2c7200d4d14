"""Partitions on disk: every client of a simulation reads the one that the first has made."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from common.config import DataSettings
from common.data.package_versions import installed_version
from common.data.partition import partition_indices
from common.data.prepared import PreparedSplit, digest
from common.data.spec import data_spec
from common.data.splits import Rows
from common.data.stored_files import UnusableCacheError, read_or_make
from common.files import write_file
from common.node import Folders

FORMAT = 1
"""Raised when a change of the code changes what a partition holds."""


def load_partitions(
    train: PreparedSplit, settings: DataSettings, num_partitions: int, seed: int, folders: Folders
) -> list[Rows]:
    """Return :func:`partition_indices` of a training set, from the cache where it is there.

    Raises
    ------
    DataError
        As :func:`partition_indices`, or the cache can't be written.
    """
    facts = [
        FORMAT,
        train.fingerprint,
        num_partitions,
        seed,
        settings.partition,
        settings.fraction,
        settings.alpha,
        settings.classes_per_client,
        settings.min_partition_size,
        installed_version("flwr-datasets"),
        installed_version("numpy"),
    ]
    path = folders.prepared / f"{settings.source}-partition-{digest(facts)}.npz"
    labels = data_spec(settings).targets.groups_of(train.arrays.y)

    def make() -> None:
        parts = partition_indices(labels, settings, num_partitions, seed)
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        write_file(path, lambda file: np.savez(file, rows=np.concatenate(parts), sizes=sizes))

    return read_or_make(path, lambda: _read(path, num_partitions, len(labels)), make)


def _read(path: Path, num_partitions: int, total: int) -> list[Rows]:
    try:
        # Reading an archive checks the CRC-32 of its members.
        with np.load(path, allow_pickle=False) as archive:
            rows, sizes = archive["rows"], archive["sizes"]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UnusableCacheError(str(error)) from error
    in_range = rows.min(initial=0) >= 0 and rows.max(initial=0) < total
    if len(sizes) != num_partitions or sizes.sum() != len(rows) or not in_range:
        raise UnusableCacheError(
            f"it holds {len(sizes)} clients and {len(rows)} rows of a set of {total}"
        )
    return np.split(rows, np.cumsum(sizes)[:-1])

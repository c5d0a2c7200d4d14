"""How a simulation shares one training set among clients."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.errors import DataError
from common.data.fedgen_partition import fedgen_partition
from common.data.splits import Rows, stratified_fraction
from common.logs import NAME
from common.seeding import derive_seed, numpy_generator

DIRICHLET_SEEDS = 50
"""Derived seeds to try; flwr-datasets draws 11 times from each."""

_LOG = logging.getLogger(NAME)


def partition_indices(
    labels: NDArray[np.int64], settings: DataSettings, num_partitions: int, seed: int
) -> list[Rows]:
    """Return the rows of every client's share, disjoint and each sorted.

    Parameters
    ----------
    labels : ndarray of int64
        ``[n]``, labels of the whole training set.
    settings : DataSettings
        ``partition`` and the numbers that belong to it; ``fraction`` of the set is taken first.
    num_partitions : int
        Clients, at least 1.
    seed : int
        The run's seed. The same arguments give the same rows on every machine.

    Returns
    -------
    list of ndarray of int64
        One array per partition id, none of them empty.

    Raises
    ------
    DataError
        The set is too small, or no split that the settings allow was found.
    """
    _check_size(len(labels), settings, num_partitions)
    if settings.partition == "fedgen-official":
        parts = fedgen_partition(
            labels,
            num_partitions,
            alpha=settings.alpha,
            ratio=settings.fraction,
            min_partition_size=settings.min_partition_size,
            generator=numpy_generator(seed, "partition"),
        )
        return [np.sort(part) for part in parts]
    rows = stratified_fraction(labels, settings.fraction, numpy_generator(seed, "fraction"))
    _check_size(len(rows), settings, num_partitions)
    parts = _SCHEMES[settings.partition](labels[rows], settings, num_partitions, seed)
    return [np.sort(rows[part]) for part in parts]


def _check_size(count: int, settings: DataSettings, num_partitions: int) -> None:
    smallest = settings.min_partition_size
    if settings.partition not in ("dirichlet", "fedgen-official"):
        smallest = 1
    if num_partitions < 1 or count < num_partitions * smallest:
        raise DataError(
            f"{count} training examples can't be shared among {num_partitions} clients with at "
            f"least {smallest} each (data.partition={settings.partition!r}): use between 1 and "
            f"{max(1, count // smallest)} clients, a larger data.fraction (now "
            f"{settings.fraction:g}), or a smaller data.min-partition-size"
        )


def _iid(labels: Rows, settings: DataSettings, num_partitions: int, seed: int) -> list[Rows]:
    from flwr_datasets.partitioner import IidPartitioner

    # The partitioner cuts the set in the order it has, which may be sorted by label.
    order = numpy_generator(seed, "partition").permutation(len(labels))
    return _rows_of(IidPartitioner(num_partitions), labels, order, num_partitions)


def _classes_per_client(
    labels: Rows, settings: DataSettings, num_partitions: int, seed: int
) -> list[Rows]:
    from flwr_datasets.partitioner import PathologicalPartitioner

    present = len(np.unique(labels))
    if settings.classes_per_client > present:
        raise DataError(
            f"data.classes-per-client={settings.classes_per_client} is more than the {present} "
            f"labels of {settings.source!r}: use 1 to {present}"
        )
    partitioner = PathologicalPartitioner(
        num_partitions,
        partition_by="label",
        num_classes_per_partition=settings.classes_per_client,
        # As in the paper (Li et al., ICDE 2022): with enough clients every label is used.
        class_assignment_mode="first-deterministic",
        seed=derive_seed(seed, "partition"),
    )
    try:
        with warnings.catch_warnings():
            # It warns of labels that go to no client, and names a setting that doesn't exist here.
            warnings.simplefilter("ignore")
            parts = _rows_of(partitioner, labels, np.arange(len(labels)), num_partitions)
    except ValueError as error:
        raise DataError(
            f"no split of {len(labels)} examples gives {num_partitions} clients "
            f"{settings.classes_per_client} labels each: {error}. Use fewer clients, a smaller "
            "data.classes-per-client or a larger data.fraction"
        ) from error
    unused = np.setdiff1d(labels, labels[np.concatenate(parts)]).tolist()
    if unused:
        _LOG.warning(
            "data.partition='classes-per-client': labels %s go to no client; use more clients or "
            "a larger data.classes-per-client to train on all",
            unused,
        )
    return parts


def _dirichlet(labels: Rows, settings: DataSettings, num_partitions: int, seed: int) -> list[Rows]:
    from flwr_datasets.partitioner import DirichletPartitioner

    failure: Exception | None = None
    for attempt in range(DIRICHLET_SEEDS):
        partitioner = DirichletPartitioner(
            num_partitions,
            partition_by="label",
            alpha=settings.alpha,
            min_partition_size=settings.min_partition_size,
            self_balancing=True,
            seed=derive_seed(seed, f"partition-{attempt}"),
        )
        try:
            # It warns at every draw that it throws away, and where a small alpha makes all
            # proportions of a label zero it divides 0 by 0 and goes on with a wrong split.
            with warnings.catch_warnings(), np.errstate(divide="raise", invalid="raise"):
                warnings.simplefilter("ignore")
                return _rows_of(partitioner, labels, np.arange(len(labels)), num_partitions)
        except (ValueError, ArithmeticError) as error:
            failure = error
    raise DataError(
        f"no Dirichlet split of {len(labels)} examples of {settings.source!r} among "
        f"{num_partitions} clients gave each at least {settings.min_partition_size} "
        f"(data.min-partition-size) at data.alpha={settings.alpha:g}, in {11 * DIRICHLET_SEEDS} "
        "draws. Use a larger data.alpha, a smaller data.min-partition-size, fewer clients or a "
        "larger data.fraction"
    ) from failure


_Scheme = Callable[[Rows, DataSettings, int, int], list[Rows]]
_SCHEMES: dict[str, _Scheme] = {
    "iid": _iid,
    "classes-per-client": _classes_per_client,
    "dirichlet": _dirichlet,
}


def _rows_of(partitioner: Any, labels: Rows, order: Rows, num_partitions: int) -> list[Rows]:
    """Run one of flwr-datasets' partitioners on labels alone: in memory, without the network."""
    from datasets import Dataset

    class Columns(Dataset):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            # A partitioner makes an array of the labels anew for every seed; a column of datasets
            # is walked row by row for that, which takes longer than all the drawing.
            return self.data.column(key).to_numpy() if key == "label" else super().__getitem__(key)

    partitioner.dataset = Columns.from_dict({"label": labels[order], "row": order})
    shares = (partitioner.load_partition(number) for number in range(num_partitions))
    return [np.asarray(share.with_format("numpy")["row"][:], dtype=np.int64) for share in shares]

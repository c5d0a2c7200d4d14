"""The examples that one client, or the server, works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.config import DataSettings, Settings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.examples import ExampleSet, open_examples
from common.data.memory import check_limit
from common.data.partition_cache import load_partitions
from common.data.prepared import PreparedSplit, load_split
from common.data.sites import Sites
from common.data.spec import data_spec
from common.data.splits import (
    Rows,
    held_label_rows,
    lasting_split,
    stratified_fraction,
    validation_split,
)
from common.data.statistics import Moments, Statistics
from common.data.targets import Numbers
from common.node import Folders, Node
from common.seeding import derive_seed, numpy_generator


@dataclass(frozen=True)
class ClientData:
    """What one client trains and evaluates on.

    Attributes
    ----------
    open_train, open_evaluation : callable
        Called once, when the examples are first asked for: a query needs only their labels, an
        evaluation not the training examples.
    label_counts : Tensor
        Int64 ``[groups]`` on the CPU: examples of each label in ``train``, or their number where
        the targets are no labels (``Targets.groups``).
    measure : callable
        Called once, when the moments are first asked for: only a query does.
    """

    open_train: Callable[[], ExampleSet]
    open_evaluation: Callable[[], ExampleSet]
    label_counts: Tensor
    measure: Callable[[], Moments | None] = lambda: None

    @cached_property
    def train(self) -> ExampleSet:
        """At least one example."""
        return self.open_train()

    @cached_property
    def evaluation(self) -> ExampleSet:
        """May be empty."""
        return self.open_evaluation()

    @cached_property
    def moments(self) -> Moments | None:
        """Of the examples in ``train``, as stored; None where nothing is standardised."""
        return self.measure()


def load_client_data(
    settings: Settings, node: Node, statistics: Statistics | None = None
) -> ClientData:
    """Return this client's examples; when asked for, they lie on its device where they fit.

    They are standardised by ``statistics``, which only the server knows: a query has none.

    A node with a partition id holds a share of the data set, whether that is built in or the
    user's own; one without holds all that is in its folder (the user's own data, and ``heart``).
    ``data.validation-fraction`` of them is kept from training whatever ``data.client-test`` says;
    the preset of FedGen's code sets it to 0.

    Raises
    ------
    DataError
        Missing or unusable data, or examples that can't be augmented; no partition, or no
        examples for this client.
    """
    data = settings.data
    # All that can be wrong is said when the client is asked who it is, not when it first trains.
    check_limit()
    spec = data_spec(data).fitted(statistics or Statistics())
    spec.kind.augmentation(data.augmentation)
    train = load_split(data, node.folders, "train")
    if train is None:
        raise DataError(f"source {data.source!r} has no training examples in {node.folders.data}")
    shares, own = _shares(train, settings, node)
    held = shares[own]
    if not len(held):
        raise DataError(_no_examples(data, node))
    kept, validation = _validation(train, held, settings, node)
    groups = spec.targets.groups_of(train.arrays.y[kept])
    counts = np.bincount(groups, minlength=spec.targets.groups)
    if data.client_test == "validation":
        tested = train.arrays, validation
    else:
        tested = _test_examples(train, shares, own, settings, node)
    return ClientData(
        partial(open_examples, train.arrays, kept, spec, node.device),
        partial(open_examples, *tested, spec, node.device),
        torch.from_numpy(counts.astype(np.int64)),
        lambda: spec.moments(train.arrays.x[kept]),
    )


def named_by_its_share(node: Node, settings: Settings) -> Node:
    """Return ``node`` under the name of its site, if its share has one and nobody named it.

    Raises
    ------
    DataError
        Missing or unusable data.
    """
    if node.is_named or not node.has_partition or not settings.data.names_sites:
        return node
    train = load_split(settings.data, node.folders, "train")
    names = train.arrays.sites.names if train and train.arrays.sites else ()
    number = node.partition_id or 0
    # Another number of clients than of sites is refused where shares are made.
    return replace(node, name=names[number]) if number < len(names) else node


def load_server_test_set(
    settings: Settings,
    folders: Folders,
    device: torch.device,
    statistics: Statistics | None = None,
) -> ExampleSet | None:
    """Return the source's whole test set; ``None`` for site data without one on this machine.

    Raises
    ------
    DataError
        The data set is missing or unusable.
    """
    test = load_split(settings.data, folders, "test")
    if test is None:
        return None
    spec = data_spec(settings.data).fitted(statistics or Statistics())
    return open_examples(test.arrays, np.arange(len(test.arrays.y)), spec, device)


def lasting_validation(
    held: Rows, keys: NDArray[np.uint64], settings: Settings
) -> tuple[Rows, Rows]:
    """Return a site's own examples parted into (training, validation).

    A site's data grow: an example that was trained on must not be validated on later.

    Parameters
    ----------
    held : Rows
        The examples that it uses.
    keys : ndarray of uint64
        Of all its examples (:func:`common.data.splits.content_keys`).
    settings : Settings
    """
    seed = derive_seed(settings.seed, "validation")
    return lasting_split(held, keys[held], settings.data.validation_fraction, seed)


def _validation(
    train: PreparedSplit, held: Rows, settings: Settings, node: Node
) -> tuple[Rows, Rows]:
    """Return ``held`` parted into (training, validation)."""
    fraction = settings.data.validation_fraction
    if node.has_partition:
        generator = numpy_generator(settings.seed, "validation", node.name)
        return validation_split(held, fraction, generator)
    return lasting_validation(held, np.asarray(train.keys), settings)


def _shares(train: PreparedSplit, settings: Settings, node: Node) -> tuple[list[Rows], int]:
    """Return the rows of all clients and which of them are this client's."""
    data = settings.data
    labels = data_spec(data).targets.groups_of(train.arrays.y)
    number, total = node.partition_id, node.num_partitions
    sites = train.arrays.sites
    if not node.has_partition and (data.is_site_data or sites):
        generator = numpy_generator(settings.seed, "fraction", node.name)
        return [stratified_fraction(labels, data.fraction, generator)], 0
    if number is None or total is None or number >= total:
        raise DataError(
            f"source {data.source!r} is shared among clients, but client {node.name!r} has "
            f"partition-id={number} and num-partitions={total}: a simulation sets both, a "
            "SuperNode takes them from --node-config 'partition-id=0 num-partitions=10' "
            "(partition-id from 0, below num-partitions). For a site's own data use "
            "data.source='folder', 'npz', 'table' or 'text', and neither of the two"
        )
    if sites:
        _check_one_for_each(sites, total, data)
        return sites.shares(labels, data.fraction, settings.seed), number
    if isinstance(data_spec(data).targets, Numbers) and data.partition != "iid":
        raise DataError(
            f"data.partition={data.partition!r} shares examples by their class labels, and these "
            "have none: set data.partition='iid'"
        )
    return load_partitions(train, data, total, settings.seed, node.folders), number


def _check_one_for_each(sites: Sites, total: int, data: DataSettings) -> None:
    if total == len(sites.names):
        return
    count, listed = len(sites.names), ", ".join(sites.names[:10])
    more = ", ..." if count > 10 else ""
    who = f"data.client-column={data.client_column!r}" if data.client_column else repr(data.source)
    raise DataError(
        f"{who} names {count} sites, each a client ({listed}{more}), but there are {total} "
        f"clients: simulate --clients {count}, or start as many SuperNodes with "
        f"num-partitions={count}"
    )


def _test_examples(
    train: PreparedSplit, shares: list[Rows], own: int, settings: Settings, node: Node
) -> tuple[Arrays, Rows]:
    """Return a test set and the rows of it that this client evaluates on."""
    data = settings.data
    test = load_split(data, node.folders, "test")
    if test is None:
        raise DataError(
            f"data.client-test={data.client_test!r} needs a test set, but client {node.name!r} has "
            f"none in {node.folders.data}: add test.npz (source 'npz'), test/<class>/ ('folder') "
            "or test.tsv, .csv or .jsonl ('text'), or set data.client-test='validation'"
        )
    rows = np.arange(len(test.arrays.y))
    if data.client_test == "official":
        labels = train.arrays.y
        held = [frozenset(np.unique(labels[share]).tolist()) for share in shares]
        rows = held_label_rows(np.asarray(test.arrays.y), held, own)
    return test.arrays, rows


def _no_examples(data: DataSettings, node: Node) -> str:
    if data.names_sites and node.has_partition:
        return (
            f"client {node.name!r} has no examples: none in {node.folders.data} is of its site "
            f"(partition {node.partition_id} of {node.num_partitions}). Add its file, or start "
            "this client without partition-id on what lies there"
        )
    if not node.has_partition:
        return (
            f"client {node.name!r} has no examples: source {data.source!r} in {node.folders.data} "
            "is empty. Add examples, or don't start this client"
        )
    return (
        f"client {node.name!r} has no examples: data.partition={data.partition!r}, "
        f"data.alpha={data.alpha:g}, data.fraction={data.fraction:g} and partition "
        f"{node.partition_id} of {node.num_partitions} leave it none. Use fewer clients, a larger "
        "data.fraction or a larger data.min-partition-size"
    )

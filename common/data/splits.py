"""Seeded parts of a set of examples: a stratified fraction, a validation split, held labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def stratified_fraction(labels: Rows, fraction: float, generator: np.random.Generator) -> Rows:
    """Return the sorted rows of a random ``fraction`` of every label, at least one of each.

    Parameters
    ----------
    labels : ndarray of int64
        ``[n]``.
    fraction : float
        In (0, 1].
    """
    if fraction == 1:
        return np.arange(len(labels))
    chosen = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        chosen.append(generator.permutation(rows)[: max(1, round(fraction * len(rows)))])
    return np.sort(np.concatenate(chosen)) if chosen else np.arange(0)


def validation_split(
    rows: Rows, fraction: float, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return ``rows`` parted at random into (training, validation), each sorted.

    One example at least goes to each side. A single example stays for training, and nothing is left
    for validation; so it is with ``fraction`` 0.
    """
    if fraction == 0 or len(rows) < 2:
        return np.sort(rows), rows[:0]
    count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
    order = generator.permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])


def held_label_rows(test_labels: Rows, held: Sequence[frozenset[int]], partition_id: int) -> Rows:
    """Return one client's share of a test set: only labels that it holds (FedGen's code).

    Of every label, ``floor(count / clients)`` test examples go to each client that holds it, as
    consecutive slices of the test set in order of partition id
    (github.com/zhuangdizhu/FedGen, data/Mnist/generate_niid_dirichlet.py).

    Parameters
    ----------
    test_labels : ndarray of int64
        ``[n]``, in the test set's own order.
    held : sequence of frozenset of int
        Labels in the training data of every client, by partition id.
    partition_id : int
    """
    shares = [np.arange(0)]
    for label in sorted(held[partition_id]):
        rows = np.flatnonzero(test_labels == label)
        share = len(rows) // len(held)
        before = sum(label in labels for labels in held[:partition_id])
        shares.append(rows[before * share : (before + 1) * share])
    return np.sort(np.concatenate(shares))

"""Seeded parts of a set of examples: a stratified fraction, a validation split, held labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

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


def content_keys(examples: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a number for each example that depends on its bytes only; equal ones share theirs.

    Parameters
    ----------
    examples : ndarray
        ``[n, ...]``.

    Returns
    -------
    ndarray of uint64
        ``[n]``, the first 8 bytes of BLAKE2b.
    """
    digests = (hashlib.blake2b(each.tobytes(), digest_size=8).digest() for each in examples)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def lasting_split(
    rows: Rows, keys: NDArray[np.uint64], fraction: float, seed: int
) -> tuple[Rows, Rows]:
    """Return ``rows`` parted into (training, validation) so that each stays where it is for good.

    The side of an example depends on its content and the seed alone: others may come and go, files
    may be renamed, and copies of one image are all on one side. In return ``fraction`` holds only
    on average, for all examples and for those of each label: of n examples ``fraction * n`` are for
    validation, give or take ``sqrt(n * fraction * (1 - fraction))``.

    One example at least goes to each side, as in :func:`validation_split`: where chance would
    leave none for validation the one with the smallest number goes there, and while that is so a
    new example may take its place. It then is trained on, never the other way round.

    Parameters
    ----------
    rows : ndarray of int64
        ``[n]``.
    keys : ndarray of uint64
        ``[n]``, of :func:`content_keys`.
    fraction : float
        In [0, 1).
    seed : int
        In [0, 2**64).
    """
    if fraction == 0 or len(rows) < 2:
        return np.sort(rows), rows[:0]
    numbers = _mixed(keys ^ np.uint64(seed))
    tested = (numbers >> np.uint64(11)) * 2.0**-53 < fraction
    if not tested.any():
        tested[np.argmin(numbers)] = True
    elif tested.all():
        tested[np.argmax(numbers)] = False
    return np.sort(rows[~tested]), np.sort(rows[tested])


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers scrambled, each for itself: SplitMix64's output function.

    Without it two seeds would choose sets that are equal or have nothing in common.
    """
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


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

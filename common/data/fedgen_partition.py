"""The split of FedGen's published code (github.com/zhuangdizhu/FedGen, generate_niid_dirichlet.py).

It caps the examples of every label by what one user may hold, so that at ratio 0.5 with 20 users
only 1,500 of each MNIST digit are used, 25% of the set rather than the paper's 50%.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.data.errors import DataError
from common.data.splits import Rows

MAX_DRAWS = 1000


def fedgen_partition(
    labels: NDArray[np.int64],
    num_users: int,
    *,
    alpha: float,
    ratio: float,
    min_partition_size: int,
    generator: np.random.Generator,
) -> list[Rows]:
    """Return the rows of every user's share.

    Parameters
    ----------
    labels : ndarray of int64
        ``[n]``.
    num_users : int
        At least 1.
    alpha : float
        Dirichlet concentration, above 0.
    ratio : float
        The code's ``sampling_ratio``, in (0, 1]. At 1 no label is capped.
    min_partition_size : int
        All is drawn again until every user has this many examples.

    Raises
    ------
    DataError
        No draw out of ``MAX_DRAWS`` was acceptable.
    """
    rows_of_label = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(MAX_DRAWS):
        shares = _draw(rows_of_label, len(labels), num_users, alpha, ratio, generator)
        if shares is not None and min(len(share) for share in shares) >= min_partition_size:
            return shares
    raise DataError(
        f"no split of {len(labels)} examples among {num_users} clients gave each at least "
        f"{min_partition_size} (data.min-partition-size) at data.alpha={alpha:g} and "
        f"data.fraction={ratio:g}, in {MAX_DRAWS} draws (data.partition='fedgen-official'). Use a "
        "larger data.alpha or data.fraction, a smaller data.min-partition-size or fewer clients"
    )


def _draw(
    rows_of_label: list[Rows],
    total: int,
    num_users: int,
    alpha: float,
    ratio: float,
    generator: np.random.Generator,
) -> list[Rows] | None:
    """Return one split, or ``None`` where no user that may still receive has a proportion."""
    cap = ratio * total / num_users
    sizes = np.zeros(num_users, dtype=np.int64)
    pieces: list[list[Rows]] = [[] for _ in range(num_users)]
    for number in generator.permutation(len(rows_of_label)):
        rows = generator.permutation(rows_of_label[number])
        if ratio < 1:
            rows = rows[: int(min(cap, int(ratio * len(rows))))]
        proportions = generator.dirichlet(np.full(num_users, alpha)) * (sizes < cap)
        if proportions.sum() == 0:
            return None
        proportions /= proportions.sum()
        cuts = (np.cumsum(proportions) * len(rows)).astype(np.int64)[:-1]
        for user, piece in enumerate(np.split(rows, cuts)):
            pieces[user].append(piece)
            sizes[user] += len(piece)
    return [np.concatenate(piece) for piece in pieces]

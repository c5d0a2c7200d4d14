"""Which site each example comes from, where the data themselves say so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.data.errors import DataError
from common.data.splits import Rows, stratified_fraction
from common.seeding import numpy_generator

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]")
_NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class Sites:
    """The sites of a set of examples.

    Attributes
    ----------
    names : tuple of str
        Of the sites, as clients may be called.
    of : ndarray of int64
        ``[n]``, for each example which of them it comes from.
    """

    names: tuple[str, ...]
    of: NDArray[np.int64]

    @classmethod
    def named_by(cls, values: Sequence[str], column: str, origin: str) -> Sites:
        """Return one site for each different value of a column.

        They are in order, numbers by size. A value is the client's
        name, what a name can't hold replaced by ``-``; a number follows the column's name.

        Raises
        ------
        DataError
            An empty value, or two of one name; ``origin`` says where.
        """
        different = set(values)
        if "" in different:
            raise DataError(
                f"{origin}: row {list(values).index('')} has no value in {column!r} "
                "(data.client-column), so it belongs to no client: fill it, or remove the row"
            )
        numbers = all(_NUMBER.fullmatch(value) for value in different)
        ordered = sorted(different, key=int) if numbers else sorted(different)
        names = [_name(f"{column}-{value}" if numbers else value) for value in ordered]
        counts = Counter(names)
        wrong = [name for name in names if counts[name] > 1 or set(name) == {"."}]
        if wrong:
            raise DataError(
                f"{origin}: values of {column!r} (data.client-column) make no names of clients of "
                f"their own: {', '.join(wrong[:5])}. Write them with A-Z a-z 0-9 '.', '_' and '-', "
                "each differently"
            )
        place = {value: number for number, value in enumerate(ordered)}
        return cls(tuple(names), np.array([place[value] for value in values], dtype=np.int64))

    def shares(self, labels: Rows, fraction: float, seed: int) -> list[Rows]:
        """Return the sorted rows of each site, of every label the same ``fraction``.

        Parameters
        ----------
        labels : ndarray of int64
            ``[n]``.
        fraction : float
            In (0, 1].
        seed : int
            The run's.
        """
        shares = []
        for number, name in enumerate(self.names):
            rows = np.flatnonzero(self.of == number)
            generator = numpy_generator(seed, "fraction", name)
            shares.append(rows[stratified_fraction(labels[rows], fraction, generator)])
        return shares


def _name(value: str) -> str:
    return _NOT_IN_A_NAME.sub("-", value)[:64]

"""Decoded examples in host memory or mapped from disk, and the check that they are usable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from common.data.errors import DataError
from common.data.sites import Sites
from common.data.spec import DataSpec


@dataclass(frozen=True)
class Arrays:
    """Examples of one split, and what is to be predicted of them.

    Attributes
    ----------
    x : ndarray
        ``[n, *stored_shape]``, as the kind of data stores it: bytes or float32.
    y : ndarray
        ``[n]``: labels (int64, from 0) or numbers (float32).
    sites : Sites or None
        Where each comes from, if the data say so (``DataSettings.names_sites``).
    """

    x: NDArray[Any]
    y: NDArray[Any]
    sites: Sites | None = None


def checked(arrays: Arrays, spec: DataSpec, origin: str) -> Arrays:
    """Return ``arrays`` if a model of ``spec`` can train on them.

    Parameters
    ----------
    origin : str
        Where the arrays come from, for messages.

    Raises
    ------
    DataError
        Wrong shape, or what kind and targets refuse.
    """
    if arrays.x.shape[1:] != spec.kind.stored_shape or arrays.x.shape[0] != len(arrays.y):
        raise DataError(
            f"{origin}: expected {spec.kind.stored} {['n', *spec.kind.stored_shape]} with as many "
            f"labels, found {spec.kind.stored} {list(arrays.x.shape)} and {len(arrays.y)} labels"
        )
    spec.targets.check(arrays.y, origin)
    spec.kind.check(arrays.x, origin)
    return arrays

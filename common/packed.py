"""Long lists of whole numbers as bytes: most of a histogram's are zero."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

_TYPES = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}
"""By bytes for each number."""


class PackedError(ValueError):
    """Bytes that are not what :func:`pack` makes; the message says why."""


def pack(counts: Counts) -> bytes:
    """Return whole numbers from 0 as bytes: how long each is, then all of them, compressed.

    Parameters
    ----------
    counts : ndarray of int64
        ``[n]``.
    """
    largest = int(counts.max(initial=0))
    size = next(size for size in _TYPES if largest < 256**size)
    return bytes([size]) + zlib.compress(counts.astype(_TYPES[size]).tobytes(), level=1)


def unpack(blob: object, length: int, largest: int) -> Counts:
    """Return the numbers; no more than they take is unfolded, whatever ``blob`` holds.

    Parameters
    ----------
    blob : object
        What came.
    length : int
        How many numbers are expected.
    largest : int
        Largest allowed one, below 2**63.

    Raises
    ------
    PackedError
        Something else came.
    """
    if not isinstance(blob, bytes) or not blob or blob[0] not in _TYPES:
        raise PackedError(
            f"{length} packed whole numbers were expected; does it run the same version of this "
            "app?"
        )
    size = blob[0]
    inflate = zlib.decompressobj()
    try:
        # A byte more than fits shows that there is more.
        raw = inflate.decompress(blob[1:], length * size + 1)
    except zlib.error as error:
        raise PackedError(f"its packed numbers can't be unpacked ({error})") from error
    if len(raw) != length * size or not inflate.eof or inflate.unused_data:
        raise PackedError(f"its packed numbers are not {length} of {size} bytes each")
    numbers = np.frombuffer(raw, dtype=_TYPES[size])
    if numbers.max(initial=0) > largest:
        raise PackedError(f"its packed numbers go up to {numbers.max()}, allowed is {largest}")
    return numbers.astype(np.int64)

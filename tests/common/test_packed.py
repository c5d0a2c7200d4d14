"""Whole numbers as bytes, and what of them is refused."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.packed import PackedError, pack, unpack


@given(st.lists(st.integers(0, 2**40), max_size=40))
def test_numbers_come_back_as_they_were(numbers: list[int]) -> None:
    blob = pack(np.array(numbers, dtype=np.int64))
    assert unpack(blob, len(numbers), 2**40).tolist() == numbers


def test_mostly_zeros_take_little() -> None:
    counts = np.zeros(60_000, dtype=np.int64)
    counts[::100] = 3
    assert len(pack(counts)) < 1500


FOUR = pack(np.array([1, 2, 3, 300], dtype=np.int64))


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        ("text", "4 packed whole numbers were expected"),
        (b"", "4 packed whole numbers"),
        (b"\x03" + FOUR[1:], "4 packed whole numbers"),
        (b"\x02nonsense", "can't be unpacked"),
        (FOUR[:-3], "not 4 of 2 bytes"),
        (FOUR + b"more", "not 4 of 2 bytes"),
        (pack(np.zeros(3, dtype=np.int64)), "not 4 of 1 bytes"),
        (pack(np.zeros(5, dtype=np.int64)), "not 4 of 1 bytes"),
        # A bomb: a gigabyte of zeros in a megabyte is not unfolded.
        (b"\x01" + zlib.compress(bytes(10**8), 9), "not 4 of 1 bytes"),
        (pack(np.array([1, 2, 3, 1001], dtype=np.int64)), "go up to 1001, allowed is 1000"),
        (b"\x08" + zlib.compress(b"\xff" * 32), "allowed is 1000"),
    ],
)
def test_anything_else_is_refused_with_the_reason(blob: object, reason: str) -> None:
    with pytest.raises(PackedError, match=re.escape(reason)):
        unpack(blob, 4, 1000)

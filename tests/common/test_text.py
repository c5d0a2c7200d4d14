"""Text from elsewhere is shown as it is, and does nothing."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.text import escaped, safe_text, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J\x1b[31mROOT", r"\x1b[2J\x1b[31mROOT"),
        ("a\x07b\x7f\x9b", r"a\x07b\x7f\x9b"),
        ("evil\u202egnp.exe", r"evil\u202egnp.exe"),
        ("\u2066x\u2069\ufeff\u200b", r"\u2066x\u2069\ufeff\u200b"),
        (os.fsdecode(b"train/cat/\xfc.png"), r"train/cat/\xfc.png"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("one\nmoonflower INFO round 99/99", r"one\nmoonflower INFO round 99/99"),
    ],
)
def test_what_is_not_printable_is_written_out(text: str, expected: str) -> None:
    assert escaped(text) == expected


@pytest.mark.parametrize("text", ["chien d'été", "心臓", "C:\\data\\x", "± 3 µm", ""])
def test_what_people_write_stays(text: str) -> None:
    assert escaped(text) == text
    assert safe_text(text) == text


@given(st.text(alphabet=st.characters(), max_size=200), st.integers(1, 60), st.booleans())
def test_any_text_becomes_one_short_line_that_can_be_sent_and_stays_so(
    text: str, longest: int, keep_end: bool
) -> None:
    safe = safe_text(text, longest, keep_end=keep_end)
    assert safe.isprintable()
    assert len(safe) <= longest + len(" ...")
    safe.encode()
    assert safe_text(safe, longest + 4, keep_end=keep_end) == safe


def test_lines_become_one() -> None:
    assert safe_text("2 problems:\r\n  a\n\n  b\u2028c") == "2 problems: a b c"


def test_what_is_cut_says_so_at_the_end_that_is_gone() -> None:
    assert safe_text("abcdef", 3) == "abc ..."
    assert safe_text("abcdef", 3, keep_end=True) == "... def"
    assert safe_text("abc", 3) == safe_text("abc", 3, keep_end=True) == "abc"


def test_a_text_of_spaces_in_front_is_not_taken_for_a_whole_one() -> None:
    assert safe_text(" " * 100 + "x", 3) == "..."


@pytest.mark.parametrize(
    "value", ["\x1b" * 10**6, [1] * 10**6, b"\n" * 10**6, {"k" * 10**6: 1}, 10**400, [["x"] * 99]]
)
def test_any_value_is_shown_short(value: object) -> None:
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= 304


def test_a_small_value_is_shown_whole() -> None:
    assert shown([0, 1, "a\n", None]) == r"[0, 1, 'a\n', None]"

"""Words by their hashes: how a text is split, and that ids are the same everywhere."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from common.data.texts.hashed_words import hashed, words
from tests.settings import ROOT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't PANIC!", ["don", "'", "t", "panic", "!"]),
        ("  What\tis\n3.5 % ?", ["what", "is", "3", ".", "5", "%", "?"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("ﬁne \N{FULLWIDTH LATIN CAPITAL LETTER A}", ["fine", "a"]),
        ("cafe\N{COMBINING ACUTE ACCENT}", ["café"]),
        # The vowel signs are marks to Unicode, but no punctuation.
        ("हिन्दी।", ["हिन्दी", "।"]),
        ("$5...", ["$", "5", ".", ".", "."]),
        (" \n", []),
    ],
)
def test_a_text_is_split_at_white_space_and_marks_and_folded(
    text: str, expected: list[str]
) -> None:
    assert list(words(text)) == expected


def test_an_id_is_a_hash_of_the_word_and_never_the_paddings() -> None:
    digest = hashlib.blake2b(b"moon", digest_size=8).digest()
    assert hashed("Moon", 100) == [int.from_bytes(digest, "little") % 99 + 1]
    assert set(hashed(" ".join(map(str, range(500))), 4)) == {1, 2, 3}
    assert hashed("to be or not to be", 2) == [1] * 6


def test_ids_do_not_depend_on_the_process() -> None:
    # As a file of its own: the package around it imports torch, which takes seconds.
    module = ROOT / "common/data/texts/hashed_words.py"
    code = f"import runpy; print(runpy.run_path({str(module)!r})['hashed']('a rose is', 9999))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {str(hashed("a rose is", 9999))}

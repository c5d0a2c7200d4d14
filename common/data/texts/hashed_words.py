"""Words by their hashes: a tokeniser that needs no vocabulary, so that no site has to give one.

A text is brought into Unicode's NFKC and folded to one case, and split at white space; every
punctuation mark and symbol (Unicode's categories P and S) is a word of its own. A word's id is a
hash of it, so two words may share one: of a vocabulary of V ids, a word shares its with each other
word with probability 1/(V - 1).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

PADDING = 0
"""The id of no word."""


def words(text: str) -> Iterator[str]:
    """Yield the words and marks of a text, folded to one case.

    >>> list(words("Don't PANIC!"))
    ['don', "'", 't', 'panic', '!']
    """
    for piece in unicodedata.normalize("NFKC", text).casefold().split():
        yield from _split(piece)


def hashed(text: str, vocabulary: int) -> list[int]:
    """Return the id of each word, from 1 to ``vocabulary - 1``.

    The first 8 bytes of the word's BLAKE2b (UTF-8) as a little-endian number, modulo
    ``vocabulary - 1``, plus 1. Python's own ``hash`` differs from process to process.
    """
    return [_identify(word, vocabulary) for word in words(text)]


@lru_cache(maxsize=2**16)
def _split(piece: str) -> tuple[str, ...]:
    found: list[str] = []
    inside = False
    for character in piece:
        is_mark = unicodedata.category(character)[0] in "PS"
        if is_mark or not inside:
            found.append(character)
        else:
            found[-1] += character
        inside = not is_mark
    return tuple(found)


@lru_cache(maxsize=2**16)
def _identify(word: str, vocabulary: int) -> int:
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % (vocabulary - 1) + 1

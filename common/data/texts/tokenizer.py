"""From texts to ids: hashed words, or the file of a tokeniser that came with the app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.data.errors import DataError
from common.data.kinds import Tokens
from common.data.texts.hashed_words import hashed
from common.files import sha256

FOLDER = Path(__file__).with_name("tokenizers")
"""Part of Flower's bundle, so the file is the same at all sites."""

WORDS = "words"

Encode = Callable[[str], list[int]]
"""From a text to its ids, from 1 on; at most as many as the kind is long."""


def encoder(kind: Tokens) -> Encode:
    """Return what makes ids of the texts of ``kind``.

    Ids of a tokeniser's file are its own plus 1, since 0 is padding here. Special tokens are added
    as the file says; what is too long is cut off so that they stay.

    Raises
    ------
    DataError
        The file is missing, another one or no tokeniser, has more tokens than the kind, or the
        library that reads it is not installed.
    """
    if kind.tokenizer == WORDS:
        return lambda text: hashed(text, kind.vocabulary)[: kind.length]
    path = FOLDER / kind.tokenizer
    tokenizer = _read(path, kind.tokenizer_sha256)
    size = tokenizer.get_vocab_size()
    if size + 1 > kind.vocabulary:
        raise DataError(
            f"{path.name} has {size} tokens, and data.vocabulary-size is {kind.vocabulary}: it "
            f"needs one more than tokens, for the padding: set data.vocabulary-size={size + 1}"
        )
    tokenizer.no_padding()
    if (added := tokenizer.num_special_tokens_to_add(is_pair=False)) >= kind.length:
        raise DataError(
            f"{path.name} adds {added} special tokens to each text, and data.max-length is "
            f"{kind.length}: set it to at least {added + 1}"
        )
    tokenizer.enable_truncation(kind.length)
    return lambda text: [number + 1 for number in tokenizer.encode(text).ids]


def _read(path: Path, expected: str) -> Any:
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"data.tokenizer={path.name!r}: {error}. Put the file into {FOLDER} where the run is "
            "started from: from there it travels with the app"
        ) from error
    if (found := sha256(blob)) != expected:
        raise DataError(
            f"data.tokenizer={path.name!r} has SHA-256 {found}, and data.tokenizer-sha256 is "
            f"{expected!r}: if this file is meant, set data.tokenizer-sha256 to its own"
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError(
            f"data.tokenizer={path.name!r} needs the library tokenizers, which is not installed "
            "here: pip install 'moonflower[text]', or leave data.tokenizer empty for hashed words"
        ) from error
    try:
        return Tokenizer.from_str(blob.decode())
    except Exception as error:  # the library raises Exception itself
        raise DataError(f"{path} is no file of the library tokenizers: {error}") from error

"""Tokens: a text as the ids of its words or characters, padded to one length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.data.errors import DataError
from common.data.kinds.base import Augment
from common.data.token_augmentation import neighbour_swap, span_deletion, token_dropout

AUGMENTATIONS: Mapping[str, Augment] = {
    "token-dropout": token_dropout,
    "span-deletion": span_deletion,
    "neighbour-swap": neighbour_swap,
}


@dataclass(frozen=True)
class Tokens:
    """A text as ids from 1 on, padded at the end with 0: which ones count is known without more.

    Attributes
    ----------
    length : int
        Ids of one text, with the padding.
    vocabulary : int
        Ids lie below it.
    tokenizer : str
        How a text becomes ids: ``words`` (``common.data.texts.hashed_words``), ``characters`` (of
        Shakespeare), the file of a tokeniser, or "" where the site's arrays hold ids.
    tokenizer_sha256 : str
        Of that file, else "".
    """

    name: ClassVar[str] = "tokens"
    stored: ClassVar[str] = "texts as ids"
    dtypes: ClassVar[tuple[str, ...]] = ("int32", "uint8")

    length: int
    vocabulary: int
    tokenizer: str = ""
    tokenizer_sha256: str = ""

    @property
    def shape(self) -> tuple[int]:
        """Return the length."""
        return (self.length,)

    @property
    def stored_shape(self) -> tuple[int]:
        """Return the same length."""
        return self.shape

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse ids beyond the vocabulary, padding before a token, and texts without one."""
        wrong = np.argwhere((x < 0) | (x >= self.vocabulary))
        if wrong.size:
            row, column = wrong[0]
            raise DataError(
                f"{origin}: {len(wrong)} ids lie outside 0 to {self.vocabulary - 1}, the first is "
                f"{x[row, column]} at row {row}, position {column}. Number tokens from 1 (0 is "
                "padding), or set data.vocabulary-size"
            )
        is_token = x != 0
        for rows, what in (
            (~is_token.any(axis=1), "texts have no token, only padding (0)"),
            ((is_token[:, 1:] & ~is_token[:, :-1]).any(axis=1), "texts have a token after padding"),
        ):
            if rows.any():
                raise DataError(
                    f"{origin}: {rows.sum()} {what}, the first is at row {np.flatnonzero(rows)[0]}."
                    " Ids from 1 come first, then zeros; remove what has none"
                )

    def drawn(self, count: int, dtype: str, generator: np.random.Generator) -> NDArray[Any]:
        """Return texts of any length, of ids drawn evenly."""
        highest = min(self.vocabulary, np.iinfo(dtype).max + 1)
        ids = generator.integers(1, highest, (count, self.length))
        lengths = generator.integers(1, self.length + 1, (count, 1))
        return np.where(np.arange(self.length) < lengths, ids, 0).astype(dtype)

    def prepare(self, stored: Tensor) -> Tensor:
        """Return the ids as int32 ``[batch, length]``, which take as much room as float32."""
        return stored.to(torch.int32)

    def augmentation(self, name: str) -> Augment | None:
        """Return what changes the order or number of tokens."""
        if name == "none":
            return None
        if name not in AUGMENTATIONS:
            raise DataError(
                f"data.augmentation={name!r} is not for texts: allowed are 'none', "
                f"{', '.join(map(repr, AUGMENTATIONS))}"
            )
        return AUGMENTATIONS[name]

    def facts(self) -> Mapping[str, object]:
        """Return the sizes, and how a text becomes ids."""
        return {
            "kind": self.name,
            "shape": list(self.shape),
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
            "tokenizer-sha256": self.tokenizer_sha256,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Tokens:
        """Return what :meth:`facts` were made of."""
        return cls(
            int(facts["shape"][0]),
            int(facts["vocabulary"]),
            str(facts["tokenizer"]),
            str(facts["tokenizer-sha256"]),
        )

"""Kinds of data, one file each: the form of one example, from the stored array to the model.

To add a kind, write a file here with what :class:`Kind` asks for and add a line to ``KINDS``; its
settings go into ``common/config/data.py``, and ``common/data/spec.py`` makes the kind of them. A
source yields its arrays, and ``MODELS`` says which models take it. Then cache, batches,
evaluation and ``model.json`` follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from common.data.kinds.base import Augment, Kind, Standardised
from common.data.kinds.image import Image
from common.data.kinds.signal import Signal
from common.data.kinds.table import Table
from common.data.kinds.tokens import Tokens

KINDS: dict[str, Callable[[Mapping[str, Any]], Kind]] = {
    Image.name: Image.of,
    Signal.name: Signal.of,
    Table.name: Table.of,
    Tokens.name: Tokens.of,
}
"""How each is read from its facts."""

__all__ = ["KINDS", "Augment", "Image", "Kind", "Signal", "Standardised", "Table", "Tokens"]

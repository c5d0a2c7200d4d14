"""What a source of examples is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.config import DataSettings
from common.data.arrays import Arrays

Split = Literal["train", "test"]
Identity = list[list[str | int]]
"""Facts (JSON) that change when the stored examples change."""


@dataclass(frozen=True)
class Source:
    """How to find and how to decode one data set.

    Attributes
    ----------
    identity : callable
        ``(settings, data folder, split) -> Identity``, or ``None`` where a site has no such split.
        It is called for every client, so it reads no file and imports nothing heavy. Raises
        :class:`DataError` for a data set that is missing.
    decode : callable
        ``(settings, data folder, split) -> Arrays``. Called once; the result is cached.
    """

    identity: Callable[[DataSettings, Path, Split], Identity | None]
    decode: Callable[[DataSettings, Path, Split], Arrays]


def identity_of(files: Iterable[Path]) -> Identity:
    """Return path, size and time of change of every file."""
    facts: Identity = []
    for path in files:
        status = path.stat()
        facts.append([str(path), status.st_size, status.st_mtime_ns])
    return facts

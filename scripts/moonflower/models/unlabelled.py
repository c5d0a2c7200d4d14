"""Files with examples and nothing to learn from them, as a person has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from common.data import DataError
from common.data.kinds import Image, Tokens
from common.data.sources import table_files
from common.data.sources.image_files import is_image, list_files, read_image
from common.data.sources.npz import read_examples
from common.data.sources.text_lines import SUFFIXES, read_lines
from scripts.moonflower.models.opened import OpenedModel


@dataclass(frozen=True)
class Example:
    """One example, and where it is from.

    Attributes
    ----------
    file : Path
    row : int or None
        In the file, from 0; None where a file is one example.
    stored : ndarray
        Of the kind's ``stored_shape``.
    """

    file: Path
    row: int | None
    stored: NDArray[Any]


Reader = Callable[[Path, OpenedModel], Iterator[Example]]
Encode = Callable[[str], list[int]]


def _image(path: Path, opened: OpenedModel) -> Iterator[Example]:
    yield Example(path, None, read_image(path, cast(Image, opened.spec.kind).shape))


def _archive(path: Path, opened: OpenedModel) -> Iterator[Example]:
    for row, stored in enumerate(read_examples(path, opened.spec)):
        yield Example(path, row, stored)


def _table(path: Path, opened: OpenedModel) -> Iterator[Example]:
    for row, stored in enumerate(table_files.read_examples(path, opened.settings.data)):
        yield Example(path, row, stored)


def _texts(path: Path, opened: OpenedModel) -> Iterator[Example]:
    column = opened.settings.data.text_column
    encode = _encoder(opened)
    for row, line in enumerate(read_lines(path, column, None)):
        yield Example(path, row, _ids(line.text, encode, opened, f"{path}, line {line.number}"))


def _text(path: Path, opened: OpenedModel) -> Iterator[Example]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}. Save it as UTF-8") from error
    yield Example(path, None, _ids(text, _encoder(opened), opened, str(path)))


_TEXTS: dict[str, Reader] = dict.fromkeys(SUFFIXES, _texts)


def _encoder(opened: OpenedModel) -> Encode:
    from common.data.texts.tokenizer import encoder

    return encoder(cast(Tokens, opened.spec.kind))


def _ids(text: str, encode: Encode, opened: OpenedModel, origin: str) -> NDArray[np.int32]:
    ids = encode(text)
    if not ids:
        raise DataError(f"{origin}: its text is empty")
    row = np.zeros(opened.spec.kind.stored_shape, dtype=np.int32)
    row[: len(ids)] = ids
    return row


def reader_of(path: Path, opened: OpenedModel) -> Reader | None:
    """Return what reads a file for this model; None if nothing does."""
    if path.suffix.lower() == ".npz":
        return _archive
    kind = opened.spec.kind
    if opened.settings.data.source == "table" and path.suffix.lower() in table_files.SUFFIXES:
        return _table
    if isinstance(kind, Image) and is_image(path):
        return _image
    if isinstance(kind, Tokens) and kind.tokenizer:
        return _text if path.suffix.lower() == ".txt" else _TEXTS.get(path.suffix.lower())
    return None


def files_in(paths: Iterable[Path], opened: OpenedModel) -> Iterator[Path]:
    """Yield the files that are named, and of a folder, at any depth, those that can be read."""
    for path in paths:
        if path.is_dir():
            yield from (each for each in list_files(path).files if reader_of(each, opened))
        else:
            yield path


def read(path: Path, opened: OpenedModel) -> Iterator[Example]:
    """Yield the examples of a file.

    Raises
    ------
    DataError
        It is missing, damaged, or of no use for this model; the message names it.
    """
    try:
        if not path.exists():
            raise DataError(f"{path} is not there")
        reader = reader_of(path, opened)
        if reader is None:
            raise DataError(
                f"{path} can't be read for this model, whose examples are "
                f"{opened.spec.kind.stored}: allowed are {', '.join(_allowed(opened))}"
            )
        for example in reader(path, opened):
            opened.spec.kind.check(example.stored[None], str(path))
            yield example
    except OSError as error:
        raise DataError(f"{path} can't be read: {error}") from error


def _allowed(opened: OpenedModel) -> list[str]:
    kind = opened.spec.kind
    own = []
    if isinstance(kind, Image):
        own = ["image files"]
    elif isinstance(kind, Tokens) and kind.tokenizer:
        column = opened.settings.data.text_column
        own = ["one text (.txt)", f"lines ({', '.join(_TEXTS)}) with a column {column!r}"]
    elif opened.settings.data.source == "table":
        own = [f"tables ({', '.join(table_files.SUFFIXES)}) with the run's columns"]
    return [*own, "NumPy archives (.npz) with an array 'x'"]


def batches(examples: Iterable[Example], size: int) -> Iterator[list[Example]]:
    """Yield lists of up to ``size`` examples, all of one dtype, in their order."""
    batch: list[Example] = []
    for example in examples:
        if batch and (len(batch) == size or batch[0].stored.dtype != example.stored.dtype):
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


def stacked(batch: list[Example]) -> NDArray[Any]:
    """Return the examples of a batch as one array."""
    return np.stack([example.stored for example in batch])

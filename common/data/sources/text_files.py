"""A site's own texts: ``train.tsv``, ``train.csv`` or ``train.jsonl``, and the same for ``test``.

A line (of CSV, a record) has a text and what is to be predicted of it: a class name of
``data.class-names``, or without them a whole number from 0, or a number where the task learns
numbers. ``data.text-column`` and ``data.label-column`` name the columns in the first line, or are
their numbers, from 1, in a file without such a line. Files are UTF-8, with or without a byte order
mark. In TSV a quote is a character like any other; in CSV a field in quotes may hold commas, line
breaks and doubled quotes.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import cast

import numpy as np

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.kinds import Tokens
from common.data.sources.base import Identity, Split, identity_of
from common.data.sources.text_lines import SUFFIXES, read_lines
from common.data.spec import DataSpec, data_spec
from common.data.targets import Numbers

SHOWN = 5
"""Lines named in a message."""


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity | None:
    """Return the identity of the file and of how it is read; ``None`` without a test file.

    Raises
    ------
    DataError
        No training file, or two of one split.
    """
    path = _find(folder, split)
    if path is None:
        return None
    columns: list[str | int] = [settings.text_column, settings.label_column, settings.class_names]
    return [["columns", *columns], *identity_of([path])]


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read every line, and make ids of its text.

    Raises
    ------
    DataError
        Names the file, the line, what was given and what is allowed.
    """
    path = _find(folder, split)
    if path is None:
        raise DataError(f"{folder / split} has disappeared; put it back and try again")
    from common.data.texts.tokenizer import encoder

    spec = data_spec(settings)
    kind = cast(Tokens, spec.kind)
    encode = encoder(kind)
    lines = list(read_lines(path, settings.text_column, settings.label_column))
    x = np.zeros((len(lines), kind.length), dtype=np.int32)
    y = np.zeros(len(lines), dtype=np.float32 if isinstance(spec.targets, Numbers) else np.int64)
    wrong: list[str] = []
    for row, line in enumerate(lines):
        try:
            y[row] = _target(line.label, settings, spec)
            ids = encode(line.text)
            if not ids:
                raise ValueError("its text is empty")
        except ValueError as error:
            wrong.append(f"line {line.number}: {error}")
            continue
        x[row, : len(ids)] = ids
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise DataError(
            f"{path}: {len(wrong)} of {len(lines)} examples can't be used: "
            f"{'; '.join(wrong[:SHOWN])}{more}. Mend or remove these lines"
        )
    return Arrays(x, y)


def _find(folder: Path, split: Split) -> Path | None:
    names = [f"{split}{suffix}" for suffix in SUFFIXES]
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        raise DataError(
            f"{folder} has {' and '.join(path.name for path in found)}: which one is meant? Keep "
            "one, and move the others away"
        )
    if found or split == "test":
        return found[0] if found else None
    raise DataError(
        f"no examples: looked in {folder} for {', '.join(names[:-1])} or {names[-1]}. Put one "
        "there, or point data-dir of the node config (or MOONFLOWER_DATA_DIR) at the folder that "
        "holds it"
    )


def _target(label: str, settings: DataSettings, spec: DataSpec) -> float:
    """Return the number that a label stands for.

    Raises
    ------
    ValueError
        It stands for none; the message says what is allowed.
    """
    label = unicodedata.normalize("NFC", label.strip())
    if isinstance(spec.targets, Numbers):
        try:
            return float(label)
        except ValueError:
            raise ValueError(f"its label is {label!r}, and the task learns numbers") from None
    names = [unicodedata.normalize("NFC", name) for name in settings.classes]
    if names:
        if label in names:
            return names.index(label)
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise ValueError(f"its label is {label!r}, and data.class-names are {listed}")
    highest = settings.num_classes - 1
    # isdecimal: neither a sign nor '²'.
    if label.isdecimal() and int(label) <= highest:
        return int(label)
    raise ValueError(
        f"its label is {label!r}, and without data.class-names labels are whole numbers from 0 to "
        f"{highest}"
    )

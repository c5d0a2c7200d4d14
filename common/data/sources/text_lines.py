"""The lines of a file of texts, whichever format it has."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.data.errors import DataError

SUFFIXES = (".tsv", ".csv", ".jsonl")


class Line(NamedTuple):
    """A text, what is to be predicted of it, and the line where it ends, counted from 1."""

    number: int
    text: str
    label: str


def read_lines(path: Path, text: str, label: str | None) -> Iterator[Line]:
    """Yield the lines of a file; empty ones are passed over.

    Parameters
    ----------
    path : Path
        It ends in one of ``SUFFIXES``.
    text, label : str
        The columns' names, or their numbers from 1. Without a label's column, labels are "".

    Raises
    ------
    DataError
        Names the file and the line that can't be read.
    """
    content = _content(path)
    if path.suffix == ".jsonl":
        yield from _objects(path, content, text, label)
    else:
        yield from _fields(path, content, text, label)


def _content(path: Path) -> str:
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error}. Mend its permissions") from error
    try:
        # With "-sig" a byte order mark, as Windows writes it, is no part of the first column.
        content = blob.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = blob.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{blob[error.start]:02x} is not UTF-8. Save the file as "
            "UTF-8 (iconv -f latin1 -t utf8, or -f utf16)"
        ) from error
    if (place := content.find("\0")) >= 0:
        line = content.count("\n", 0, place) + 1
        raise DataError(f"{path}, line {line}: it holds a zero byte, so it is no text file")
    return content


def _fields(path: Path, content: str, text: str, label: str | None) -> Iterator[Line]:
    # newline="": the module tells a line break in a field from the end of a record.
    reader = csv.reader(
        io.StringIO(content, newline=""),
        delimiter="\t" if path.suffix == ".tsv" else ",",
        quoting=csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    width = 0
    columns: list[int] = []
    try:
        for fields in reader:
            if not fields:
                continue
            if not width:
                width, columns = len(fields), _columns(path, fields, text, label)
                if not text.isdecimal():
                    continue
            if len(fields) != width:
                raise DataError(
                    f"{path}, line {reader.line_num}: it has {len(fields)} fields, and the first "
                    f"line has {width}. A text with a {'tab' if path.suffix == '.tsv' else 'comma'}"
                    " in it needs CSV with quotes, or JSON lines"
                )
            found = [fields[column] for column in columns]
            yield Line(reader.line_num, found[0], "" if label is None else found[1])
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {error}. In CSV a field with a comma, a quote or a "
            "line break is written in quotes, and a quote in it doubled"
        ) from error


def _columns(path: Path, first: list[str], text: str, label: str | None) -> list[int]:
    """Return where the text and, if there is one, the label are in a line, from 0."""
    wanted = [text] if label is None else [text, label]
    if text.isdecimal():
        places = [int(name) - 1 for name in wanted]
        if max(places) >= len(first):
            raise DataError(
                f"{path}: data.text-column is {text}"
                f"{'' if label is None else f' and data.label-column {label}'}, and its first "
                f"line has {len(first)} fields"
            )
        return places
    for name in wanted:
        if first.count(name) != 1:
            raise DataError(
                f"{path}: its first line must name the columns, "
                f"{' and '.join(map(repr, wanted))} once each, and is "
                f"{', '.join(map(repr, first[:10]))}. Set data.text-column and data.label-column "
                "to names that stand there or, of a file without such a line, to numbers from 1"
            )
    return [first.index(name) for name in wanted]


def _objects(path: Path, content: str, text: str, label: str | None) -> Iterator[Line]:
    # Not splitlines(), which also ends a line at characters that JSON may hold.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: it is no JSON: {error}") from error
        wanted = [text] if label is None else [text, label]
        if not isinstance(fields, dict) or not set(wanted) <= fields.keys():
            found = sorted(fields) if isinstance(fields, dict) else type(fields).__name__
            raise DataError(
                f"{path}, line {number}: an object with {' and '.join(map(repr, wanted))} is "
                f"needed, found "
                f"{found}. Set data.text-column and data.label-column to its names"
            )
        value = "" if label is None else fields[label]
        if not isinstance(fields[text], str) or isinstance(value, bool | None | list | dict):
            raise DataError(
                f"{path}, line {number}: {text!r} must be a string and {label!r} a string or a "
                f"number, found {fields[text]!r:.40} and {value!r:.40}"
            )
        yield Line(number, fields[text], str(value))

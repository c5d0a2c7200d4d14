"""A site's own table: one CSV (``.csv``, ``.tsv``) or Parquet file (``.parquet``).

``train.*`` (or else ``data.*``) holds the training examples, ``test.*`` an optional test set. Which
columns are learned from, and which is to be predicted, is said by ``data.target``, ``data.numeric``
and ``data.categorical``; others are not read. A column to learn from that a site lacks altogether
is missing in all of its rows.

A CSV file is UTF-8 with a line of names; comma, semicolon or tab separate. Missing is what is
empty or one of ``MISSING``, unless it is one of the column's categories.
"""

from __future__ import annotations

import csv
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.config import Categorical, DataSettings, canonical
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.sites import Sites
from common.data.sources.base import Identity, Split, identity_of
from common.data.spec import data_spec
from common.data.targets import Numbers
from common.logs import NAME

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"})

SUFFIXES = (".csv", ".tsv", ".parquet")
_NAMES: dict[Split, tuple[str, ...]] = {"train": ("train", "data"), "test": ("test",)}
_SEPARATORS = (",", ";", "\t")
_LOG = logging.getLogger(NAME)


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity | None:
    """Return the identity of the file, and which columns are read; ``None`` for no test set.

    Raises
    ------
    DataError
        No training file, or two for one split.
    """
    path = _find(folder, split)
    if path is None and split == "test":
        return None
    if path is None:
        raise DataError(
            f"no table: looked in {folder} for train or data with one of the suffixes "
            f"{', '.join(SUFFIXES)}. Put one there, or point data-dir of the node config (or "
            "MOONFLOWER_DATA_DIR) at the folder that holds it"
        )
    chosen = [settings.target, settings.numeric, settings.categorical, settings.class_names]
    return [["columns", *chosen, settings.client_column], *identity_of([path])]


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read one file.

    Raises
    ------
    DataError
        Names the file, and the row and column of a value that can't be used.
    """
    path = _find(folder, split)
    if path is None:
        raise DataError(f"the table of {split} examples in {folder} has disappeared; put it back")
    needed = [settings.target, *([settings.client_column] if settings.client_column else [])]
    frame = _read(path, settings, needed)
    x = _rows(frame, settings, path)
    sites = None
    if settings.client_column:
        values = _text(frame[settings.client_column])
        sites = Sites.named_by(list(values), settings.client_column, str(path))
    return Arrays(x, _targets(frame, settings, path), sites)


def read_examples(path: Path, settings: DataSettings) -> NDArray[np.float32]:
    """Return the examples ``[n, *stored_shape]`` of a file that need not have a target.

    Raises
    ------
    DataError
        As :func:`decode` raises it.
    """
    return _rows(_read(path, settings, []), settings, path)


def _find(folder: Path, split: Split) -> Path | None:
    for name in _NAMES[split]:
        found = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
        found = [path for path in found if path.is_file()]
        if len(found) > 1:
            listed = " and ".join(path.name for path in found)
            raise DataError(f"{folder} has {listed}: leave the one that is to be read")
        if found:
            return found[0]
    return None


def _read(path: Path, settings: DataSettings, needed: list[str]) -> DataFrame:
    """Return ``needed`` columns and those to learn from, the latter as far as they are there."""
    wanted = [*settings.numeric_columns, *(each.name for each in settings.categorical_columns)]
    try:
        frame = (_read_parquet if path.suffix == ".parquet" else _read_csv)(path, needed + wanted)
    except DataError:
        raise
    except Exception as error:  # pandas, pyarrow and the codecs each raise their own
        raise DataError(
            f"{path} can't be read as a table: {error or type(error).__name__}. Write it anew, CSV "
            "as UTF-8 with a first line of names"
        ) from error
    absent = [name for name in needed if name not in frame]
    if absent or not set(wanted) & set(frame.columns):
        what = f"column {absent[0]!r}" if absent else "any of the columns to learn from"
        raise DataError(
            f"{path} lacks {what}. Name its columns as the run does: {', '.join(needed + wanted)}"
        )
    if lacking := [name for name in wanted if name not in frame]:
        _LOG.warning("%s: no column %s, so missing in all rows", path, ", ".join(lacking))
    return frame


def _rows(frame: DataFrame, settings: DataSettings, path: Path) -> NDArray[np.float32]:
    columns = [_numbers(frame, name, path) for name in settings.numeric_columns]
    columns += [_codes(frame, column, path) for column in settings.categorical_columns]
    return np.stack(columns, axis=1).astype(np.float32)


def _read_csv(path: Path, columns: list[str]) -> DataFrame:
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline()
    names = {separator: _split(header, separator) for separator in _SEPARATORS}
    separator = max(_SEPARATORS, key=lambda each: len(set(names[each]) & set(columns)))
    found = names[separator]
    if twice := [name for name in columns if found.count(name) > 1]:
        raise DataError(f"{path} has several columns named {twice[0]!r}: rename all but one")
    frame: DataFrame = pd.read_csv(
        path,
        sep=separator,
        encoding="utf-8-sig",
        dtype=str,
        na_filter=False,
        skip_blank_lines=False,
        skipinitialspace=True,
        header=0,
        names=found,
    )
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError(
            f"{path} has more values in its lines than names in the first: name every column"
        )
    # Lines are counted as an editor does; what is empty is no row.
    frame.index += 2
    frame = frame[[name for name in found if name in columns]]
    return frame[~(frame == "").all(axis=1)]


def _split(header: str, separator: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]


def _read_parquet(path: Path, columns: list[str]) -> DataFrame:
    import pandas as pd
    import pyarrow.parquet as pq

    names = set(pq.read_schema(path).names)
    frame: DataFrame = pd.read_parquet(path, columns=[name for name in columns if name in names])
    return frame.reset_index(drop=True)


def _text(column: Series) -> Series:
    """Return values as text, a missing one as ""."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column.dtype):
        column = column.map({True: "true", False: "false"})
    return column.astype(object).where(column.notna(), "").map(lambda value: canonical(str(value)))


def _numbers(frame: DataFrame, name: str, path: Path) -> NDArray[np.float64]:
    """Return a column of numbers, NaN where one is missing."""
    import pandas as pd

    if name not in frame:
        return np.full(len(frame), np.nan)
    column = frame[name]
    types = pd.api.types
    if types.is_numeric_dtype(column.dtype):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if not (types.is_object_dtype(column.dtype) or types.is_string_dtype(column.dtype)):
        raise DataError(
            f"{path}: column {name!r} is {column.dtype}, and data.numeric wants numbers: turn it "
            "into some, as days, or leave it out"
        )
    text = _text(column)
    missing = text.isin(MISSING)
    numbers = pd.to_numeric(text.where(~missing, None), errors="coerce")
    wrong = numbers.isna() & ~missing
    if wrong.any():
        hint = "a decimal point, not a comma" if "," in text[wrong].iloc[0] else "a number"
        raise _wrong_cell(path, name, text, wrong, f"{hint} is needed, or nothing where missing")
    return np.asarray(numbers, dtype=np.float64)


def _codes(frame: DataFrame, column: Categorical, path: Path) -> NDArray[np.float64]:
    """Return the number of each row's category, NaN where it is missing."""
    if column.name not in frame:
        return np.full(len(frame), np.nan)
    text = _text(frame[column.name])
    missing = text.isin(MISSING - set(column.values))
    if column.buckets:
        places = {value: _bucket(value, column.buckets) for value in text.unique()}
    else:
        places = {value: number for number, value in enumerate(column.values)}
    codes = text.map(places).where(~missing, np.nan)
    wrong = codes.isna() & ~missing
    if wrong.any():
        allowed = f"data.categorical allows {' or '.join(column.values)}, or nothing where missing"
        raise _wrong_cell(path, column.name, text, wrong, allowed)
    return np.asarray(codes, dtype=np.float64)


def _bucket(value: str, buckets: int) -> int:
    digest = hashlib.blake2b(value.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % buckets


def _targets(frame: DataFrame, settings: DataSettings, path: Path) -> NDArray[Any]:
    """Return labels (int64) or numbers (float32)."""
    name = settings.target
    if isinstance(data_spec(settings).targets, Numbers):
        numbers = _numbers(frame, name, path)
        _refuse_missing(frame, name, np.isnan(numbers), path)
        return numbers.astype(np.float32)
    text = _text(frame[name])
    # A class may be called so.
    _refuse_missing(frame, name, text.isin(MISSING - set(settings.classes)).to_numpy(), path)
    classes = settings.classes or tuple(str(label) for label in range(settings.num_classes))
    labels = text.map({canonical(value): label for label, value in enumerate(classes)})
    if labels.isna().any():
        allowed = " or ".join(classes) if len(classes) <= 10 else f"{classes[0]} to {classes[-1]}"
        said = "data.class-names" if settings.classes else "data.num-classes"
        raise _wrong_cell(path, name, text, labels.isna(), f"{said} allows {allowed}")
    return np.asarray(labels, dtype=np.int64)


def _refuse_missing(frame: DataFrame, name: str, missing: NDArray[np.bool_], path: Path) -> None:
    if missing.any():
        what = "what is to be predicted is missing: remove these rows"
        raise _wrong_cell(path, name, _text(frame[name]), missing, what)


def _wrong_cell(path: Path, name: str, text: Series, wrong: Any, allowed: str) -> DataError:
    """Return the error for the first wrong value of a column."""
    first = text.index[np.flatnonzero(wrong)[0]]
    where = "row" if path.suffix == ".parquet" else "line"
    return DataError(
        f"{path}, {where} {first}, column {name!r}: {str(text[first])!r} can't be used, as "
        f"{int(np.count_nonzero(wrong))} of {len(text)} values there: {allowed}"
    )

"""Which columns of a site's table are learned from: ``data.numeric`` and ``data.categorical``."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BUCKETS = re.compile(r"#([0-9]{1,5})")
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")

MOST_BUCKETS = 65536


@dataclass(frozen=True)
class Categorical:
    """A column of categories.

    Attributes
    ----------
    name : str
    values : tuple of str
        Its categories in their order; empty where they are hashed.
    buckets : int
        Categories into which values are hashed; 0 where they are listed.
    """

    name: str
    values: tuple[str, ...]
    buckets: int = 0

    @property
    def count(self) -> int:
        """Return the number of categories."""
        return self.buckets or len(self.values)


def canonical(value: str) -> str:
    """Return a value without spaces around it, ``3.0`` as ``3``: so sites may write either."""
    value = value.strip()
    whole = _WHOLE.fullmatch(value)
    return whole.group(1) if whole else value


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in ``a,b,c``.

    Raises
    ------
    ValueError
        An empty name, spaces around one, or one twice.
    """
    names = tuple(text.split(",")) if text else ()
    if len(set(names)) != len(names) or not all(name and name == name.strip() for name in names):
        raise ValueError(
            "names of columns separated by commas are needed, each once, without spaces around "
            "them, as 'age,pressure'"
        )
    return names


def categorical_of(text: str) -> tuple[Categorical, ...]:
    """Return the columns in ``sex=F|M,cp=1|2|3|4,postcode=#64``.

    Raises
    ------
    ValueError
        Says which column is not written so.
    """
    columns = tuple(_categorical(part) for part in text.split(",")) if text else ()
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise ValueError("a column is there twice")
    return columns


def _categorical(text: str) -> Categorical:
    name, equals, categories = text.partition("=")
    buckets = _BUCKETS.fullmatch(categories)
    values = tuple(canonical(value) for value in categories.split("|"))
    fits = buckets is None or 2 <= int(buckets.group(1)) <= MOST_BUCKETS
    listed = buckets is not None or (
        len(values) >= 2 and all(values) and len(set(values)) == len(values)
    )
    if not equals or not name or name != name.strip() or not fits or not listed:
        raise ValueError(
            f"{text!r}: each column is a name and at least two different values, as 'sex=F|M', or "
            f"a number of buckets (2 to {MOST_BUCKETS}) into which they are hashed, as "
            "'postcode=#64'; columns are separated by commas"
        )
    if buckets:
        return Categorical(name, (), int(buckets.group(1)))
    return Categorical(name, values)

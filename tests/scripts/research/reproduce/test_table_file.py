"""A table's file is refused with every problem and where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from common.config import SettingsError
from scripts.moonflower.research.reproduce.table_file import Table, read_table
from tests.scripts.research.reproduce.tables import TABLE


def refused(**changes: Any) -> str:
    """Return why a table with ``changes`` is refused."""
    with pytest.raises(ValidationError) as caught:
        Table.model_validate(TABLE.model_dump() | changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([], "at least 1 item"),
        ([0, 1, 0], "seeds: 0 is there more than once"),
        ([-1], "greater than or equal to 0"),
        ([2**31], "less than or equal to 2147483647"),
    ],
)
def test_seeds_are_some_and_each_once(seeds: list[int], message: str) -> None:
    assert message in refused(seeds=seeds)


def test_the_name_that_is_there_twice_is_said() -> None:
    rows = TABLE.model_dump()["rows"]
    assert "rows: moon-a is there more than once" in refused(rows=[*rows, rows[1]])


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_the_papers_numbers_are_numbers(number: float) -> None:
    rows = TABLE.model_dump()["rows"]
    rows[0]["paper"] = {"1": [90.0, number]}
    assert "row 'fedavg-a': the paper's numbers must be finite" in refused(rows=rows)


def test_no_scale_takes_the_name_of_the_table_as_it_is() -> None:
    assert "a scale can't be called paper" in refused(scales={"paper": {}, "small": {}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"title = 'caf\xe9'\n", "is no table: 'utf-8' codec"),
        (b"title = \n", "is no table: Invalid value"),
        (b"title = 3\n", "is no table:\n  title: Input should be a valid string\n  source: "),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_table(str(path))
    assert f"{path} {message}" in str(caught.value)


@pytest.mark.parametrize("name", ["./moon-cifar10", "../tables/moon-cifar10", "moon-cifar9"])
def test_a_path_ends_in_toml(name: str) -> None:
    with pytest.raises(SettingsError, match=r"that ends in \.toml works too"):
        read_table(name)

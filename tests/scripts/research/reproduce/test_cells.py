"""Cells: their settings, and which of them are meant."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import SettingsError
from scripts.moonflower.research.reproduce.cells import Cell, Request, cells_of, parse_seeds, select
from scripts.moonflower.research.reproduce.table_file import Table
from tests.scripts.research.reproduce.tables import TABLE, cells


def test_rows_columns_and_seeds_are_multiplied_and_the_first_seed_comes_first() -> None:
    assert [cell.experiment for cell in cells(seeds=(3, 5))] == [
        f"two.{row}.{column}.seed-{seed}"
        for seed in (3, 5)
        for column in ("0.1", "1")
        for row in ("fedavg-a", "moon-a")
    ]


def test_a_row_wins_over_the_scale_and_its_own_scale_over_the_row() -> None:
    # The table says 7 epochs, the scale 3, FedAvg's row 5, MOON's row at that scale 1.
    paper, small = ([each.plan.settings for each in cells(scale=s)[:2]] for s in ("paper", "small"))
    assert [settings.train.local_epochs for settings in paper] == [5, 7]
    assert [settings.train.local_epochs for settings in small] == [5, 1]
    assert [settings.num_rounds for settings in (*paper, *small)] == [4, 4, 2, 2]
    assert small[0].experiment == "two-small.fedavg-a.0.1.seed-0"


def test_rounds_can_be_asked_for() -> None:
    assert {cell.rounds for cell in cells(rounds=9)} == {9}


def cells_with(row: dict[str, Any], column: dict[str, Any] | None = None) -> list[Cell]:
    """Return the cells of the table with another first row or column."""
    described = TABLE.model_dump()
    described["rows"][0] |= row
    described["columns"][0] |= column or {}
    described["rows"][0]["paper"] = {}
    return cells_of(Request("two", Table.model_validate(described), "paper", [0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": {"local-epoch": 1}}, "train.local-epoch: unknown setting"),
        ({"data": {"client-test": "official"}}, "protocol 'global', but data.client-test is"),
        ({"seed": 3, "resume": True}, "seed, resume can't be set in a table"),
        ({"server": {"patience": 5}}, "server.patience can't be set in a table"),
    ],
)
def test_a_wrong_cell_is_refused_with_its_row_and_column(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(
        SettingsError, match=r"row 'fedavg-a', column '0\.1' of table two"
    ) as caught:
        cells_with({"settings": settings})
    assert message in str(caught.value)


def test_two_cells_of_one_name_are_refused() -> None:
    # moon-a.9 with 1, and moon-a with 9.1.
    with pytest.raises(
        SettingsError, match=r"another cell is called two\.moon-a\.9\.1\.seed-0 too"
    ):
        cells_with({"name": "moon-a.9"}, {"name": "9.1"})


def test_wrong_rounds_are_refused() -> None:
    with pytest.raises(SettingsError, match="num-rounds"):
        cells(rounds=0)


def test_an_unknown_scale_is_refused_with_those_that_exist() -> None:
    with pytest.raises(SettingsError, match="'tiny': this table has paper, small"):
        cells(scale="tiny")


def test_seeds_are_those_given_or_the_tables() -> None:
    assert parse_seeds("7, 0", TABLE) == [7, 0]
    assert parse_seeds(None, TABLE) == [0, 1]


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1.5", "1,1", "2147483648", "0-2", "²"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="whole numbers from 0 to 2147483647"):
        parse_seeds(text, TABLE)


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], 8),
        (["fedavg-a"], 4),
        (["moon"], 4),
        (["moon/0.1"], 2),
        (["*-a/1"], 4),
        (["moon/1", "fedavg-a/0.1"], 4),
        (["moon", "moon-a/1"], 4),
    ],
)
def test_only_chooses_by_row_pattern_or_algorithm_and_column(only: list[str], count: int) -> None:
    assert len(select(cells(), only)) == count


@pytest.mark.parametrize("text", ["fedgen", "moon/0.5", "moon/0.1/0", "/0.1", ""])
def test_only_of_no_cell_is_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(SettingsError, match=r"Rows are fedavg-a, moon-a .*, columns are 0.1, 1"):
        select(cells(), [text])

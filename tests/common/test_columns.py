"""Columns of a table as settings name them."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import Categorical, SettingsError, canonical
from common.data import data_spec
from common.data.kinds import Table
from tests.settings import make_settings

TABLE: dict[str, Any] = {
    "data.source": "table",
    "data.target": "sick",
    "data.numeric": "age,pressure",
    "data.categorical": "sex=F|M,postcode=#64",
    "data.num-classes": 2,
}


def test_columns_are_read_from_the_settings() -> None:
    settings = make_settings(**TABLE)
    assert settings.data.numeric_columns == ("age", "pressure")
    assert settings.data.categorical_columns == (
        Categorical("sex", ("F", "M")),
        Categorical("postcode", (), 64),
    )
    assert data_spec(settings.data).kind == Table(2, (2, 64), indicators=True, standardise=True)


@pytest.mark.parametrize(
    ("written", "meant"), [(" 3.0 ", "3"), ("-1.00", "-1"), ("3.5", "3.5"), ("007", "007")]
)
def test_whole_numbers_are_one_value_however_they_are_written(written: str, meant: str) -> None:
    assert canonical(written) == meant


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data.target": ""}, "data.target: source 'table' needs the name"),
        ({"data.numeric": "age, pressure"}, "data.numeric: names of columns separated by commas"),
        ({"data.numeric": "age,age"}, "each once"),
        ({"data.categorical": "sex"}, "'sex': each column is a name and at least two"),
        ({"data.categorical": "sex=F"}, "at least two different values"),
        ({"data.categorical": "sex=1|1.0"}, "at least two different values"),
        ({"data.categorical": "sex=#1"}, "'sex=#1'"),
        ({"data.categorical": "sex=F|M,sex=#4"}, "a column is there twice"),
        ({"data.categorical": "age=1|2"}, "age: a column is either the target"),
        ({"data.numeric": "", "data.categorical": ""}, "needs columns"),
        ({"data.client-column": "age"}, "age: a column is either the target"),
        ({"data.num-classes": 0}, "at least 2"),
        ({"data.class-names": "ill"}, "1 names, but data.num-classes is 2"),
        ({"data.kind": "table"}, "only source 'npz' has a choice of kinds"),
        ({"data.features": 3}, "source 'table' has its own shape"),
        ({"data.source": "digits", "data.num-classes": 0}, "has no columns to choose"),
        ({"data.source": "heart", "data.num-classes": 0, "data.client-column": "a"}, "no such"),
    ],
)
def test_what_can_t_be_meant_is_refused_when_settings_are_parsed(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        make_settings(**{**TABLE, **changes})
    make_settings(**TABLE)


def test_all_problems_of_a_schema_are_said_at_once() -> None:
    with pytest.raises(SettingsError, match="3 problems"):
        make_settings(
            **{**TABLE, "data.target": "", "data.numeric": "a,a", "data.categorical": "b"}
        )

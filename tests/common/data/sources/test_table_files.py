"""A site's own table: what is read of it, and what is said of what can't be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from common.data import DataError
from common.data.arrays import Arrays
from common.data.prepared import decode_split, load_split
from common.node import Folders
from tests.settings import make_settings

NAN = float("nan")
TABLE: dict[str, Any] = {
    "data.source": "table",
    "data.target": "sick",
    "data.numeric": "age,pressure",
    "data.categorical": "sex=F|M",
    "data.num-classes": 2,
}
NUMBERS = {**TABLE, "task.name": "regression", "data.num-classes": 0}
CSV = """id,age,sex,pressure,sick
a,63,M,145.5,1
b,?,F,,0
c,41.0, M ,130,1.0
d,28,,1e2,0
"""
X = [[63, 145.5, 1], [NAN, NAN, 0], [41, 130, 1], [28, 100, NAN]]


def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path, tmp_path / "state", tmp_path / "output")


def decoded(
    tmp_path: Path, text: str | bytes = CSV, name: str = "train.csv", **changes: Any
) -> Arrays:
    """Write a file and return what is read of it."""
    blob = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(blob)
    found = decode_split(make_settings(**{**TABLE, **changes}).data, folders(tmp_path), "train")
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        CSV.encode("utf-8-sig"),
        CSV.replace("\n", "\r\n"),
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        CSV + "\n\n",
    ],
)
def test_numbers_categories_and_what_is_missing_are_read(text: str | bytes, tmp_path: Path) -> None:
    arrays = decoded(tmp_path, text)
    np.testing.assert_array_equal(arrays.x, np.array(X, dtype=np.float32))
    assert (arrays.y.tolist(), arrays.y.dtype, arrays.x.dtype) == ([1, 0, 1, 0], "int64", "float32")


def test_a_parquet_file_of_the_same_gives_the_same(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "sick": [1, 0, 1, 0],
            "pressure": [145.5, None, 130, 100],
            "age": pd.array([63, None, 41, 28], dtype="Int64"),
            "sex": ["M", "F", "M", None],
            "when": pd.to_datetime(["2020-01-01"] * 4),
        }
    )
    frame.to_parquet(tmp_path / "data.parquet")
    arrays = decode_split(make_settings(**TABLE).data, folders(tmp_path), "train")
    assert arrays is not None
    np.testing.assert_array_equal(arrays.x, np.array(X, dtype=np.float32))
    assert arrays.y.tolist() == [1, 0, 1, 0]
    wrong = make_settings(**{**TABLE, "data.numeric": "age,when"})
    with pytest.raises(DataError, match=r"column 'when' is datetime64.*turn it into some"):
        decode_split(wrong.data, folders(tmp_path), "train")


def test_classes_have_names_and_numbers_are_predicted_where_the_task_learns_them(
    tmp_path: Path,
) -> None:
    named = CSV.replace(",1\n", ",NA\n").replace(",1.0\n", ",NA\n").replace(",0\n", ",well\n")
    arrays = decoded(tmp_path, named, **{"data.class-names": "NA,well"})
    assert arrays.y.tolist() == [0, 1, 0, 1]
    age = {**NUMBERS, "data.target": "age", "data.numeric": "pressure"}
    numbers = decoded(tmp_path, CSV.replace("?", "5"), **age)
    assert (numbers.y.tolist(), numbers.y.dtype) == ([63, 5, 41, 28], "float32")


def test_hashed_categories_are_the_same_everywhere(tmp_path: Path) -> None:
    codes = decoded(tmp_path, **{"data.categorical": "id=#8"}).x[:, 2]
    # printf a | b2sum -l 64: its last digit modulo 8, f to 7, and so on.
    assert codes.tolist() == [7, 5, 3, 3]


def test_a_column_that_a_site_lacks_is_missing_everywhere_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "moonflower")
    logging.getLogger("moonflower").propagate = True
    arrays = decoded(tmp_path, **{"data.numeric": "age,weight", "data.categorical": "race=a|b"})
    assert np.isnan(arrays.x[:, 1:]).all()
    assert "no column weight, race, so missing in all rows" in caplog.text


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        (CSV.replace("130", "high"), {}, r"train.csv, line 4, column 'pressure': 'high' can't be"),
        (CSV.replace("145.5", '"145,5"'), {}, "a decimal point, not a comma, is needed|point, not"),
        (CSV.replace(" M ", "X"), {}, "line 4, column 'sex': 'X'.*allows F or M"),
        (CSV.replace("28,,1e2,0", "28,,1e2,"), {}, "line 5, column 'sick': ''.*remove these rows"),
        (
            CSV.replace("1e2,0", "1e2,2"),
            {},
            "line 5, column 'sick': '2'.*num-classes allows 0 or 1",
        ),
        (CSV.replace("1e2", "inf"), {}, "1 numbers are infinite"),
        (CSV.replace("sick", "ill"), {}, "lacks column 'sick'.*Name its columns as the run does"),
        (CSV, {"data.numeric": "a,b", "data.categorical": ""}, "lacks any of the columns to learn"),
        (CSV.replace("id,", "age,"), {}, "several columns named 'age'"),
        (CSV.replace("c,41.0", "c,41.0,7"), {}, "can't be read as a table"),
        (CSV.replace("id", "größe").encode("latin-1"), {}, "can't be read as a table.*UTF-8"),
        (CSV.replace("1\n", "1,9\n").replace("0\n", "0,9\n"), {}, "more values in its lines than"),
        ("", {}, "can't be read as a table"),
        (CSV, {"data.missing": "refuse"}, "2 numbers are missing.*row 1, column 0"),
    ],
)
def test_what_can_t_be_used_is_named_with_its_place(
    text: str | bytes, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=reason):
        decoded(tmp_path, text, **changes)


def test_a_site_without_a_table_or_with_two_is_told(tmp_path: Path) -> None:
    data = make_settings(**TABLE).data
    with pytest.raises(DataError, match="no table: looked in"):
        decode_split(data, folders(tmp_path), "train")
    assert decode_split(data, folders(tmp_path), "test") is None
    (tmp_path / "data.tsv").write_text(CSV)
    with pytest.raises(DataError, match=r"has data\.csv and data\.tsv"):
        decoded(tmp_path, name="data.csv")


def test_the_cache_knows_which_columns_it_was_made_of_and_whose_the_rows_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.csv").write_text(CSV)
    plain = load_split(make_settings(**TABLE).data, folders(tmp_path), "train")
    by_site = make_settings(**{**TABLE, "data.client-column": "id"}).data
    for _ in range(2):  # made, and read
        sited = load_split(by_site, folders(tmp_path), "train")
        assert sited is not None
        assert sited.arrays.sites is not None
        assert sited.arrays.sites.names == ("a", "b", "c", "d")
        assert sited.arrays.sites.of.tolist() == [0, 1, 2, 3]
    other = load_split(
        make_settings(**{**TABLE, "data.numeric": "pressure,age"}).data, folders(tmp_path), "train"
    )
    assert plain is not None
    assert other is not None
    assert plain.arrays.sites is None
    assert other.arrays.x[0].tolist() == [145.5, 63, 1]

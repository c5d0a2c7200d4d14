"""A site's texts, before any run."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.data import DataError
from common.node import Folders
from scripts.moonflower.doctor.site_data import check_examples
from tests.settings import make_settings

TEXTS = {"data.source": "text", "data.num-classes": 2, "data.class-names": "no,yes"}


def test_a_site_s_texts_are_counted_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    folders = Folders(tmp_path, tmp_path / "state", tmp_path / "output")
    (tmp_path / "train.csv").write_text("text,label\n" + "fine,yes\nbad,no\n" * 10)
    (tmp_path / "test.csv").write_text("text,label\nfine,yes\n")
    found = [each.found for each in check_examples(make_settings(**TEXTS), folders)]
    assert found == [
        "20 of 64, per label 0: 10, 1: 10; none of 0 labels",
        "1: per label 1: 1; none of 1 labels",
    ]
    assert not (tmp_path / "state").exists(), "nothing is written"
    (tmp_path / "train.csv").write_text("text,label\nfine,maybe\n")
    with pytest.raises(DataError, match=r"train.csv: 1 of 1 .* line 2: its label is 'maybe'"):
        list(check_examples(make_settings(**TEXTS), folders))


def test_a_table_s_labels_are_counted_and_a_column_without_any_value_is_warned_of(
    tmp_path: Path,
) -> None:
    folders = Folders(tmp_path, tmp_path / "state", tmp_path / "output")
    table = {
        "data.source": "table",
        "data.num-classes": 2,
        "data.target": "sick",
        "data.numeric": "age,weight",
        "data.categorical": "sex=F|M",
    }
    (tmp_path / "train.csv").write_text("age,sex,sick\n" + "50,F,0\n?,M,1\n" * 10)
    labels, columns = check_examples(make_settings(**table), folders)
    # Two numbers, two indicators, two categories.
    assert labels.found == "20 of 6, per label 0: 10, 1: 10; none of 0 labels"
    assert (columns.status, columns.found) == ("warning", "no value in weight")
    (tmp_path / "train.csv").write_text("age,sex,sick\n50,F,0\n50,X,1\n")
    with pytest.raises(DataError, match=r"train\.csv, line 3, column 'sex': 'X'"):
        list(check_examples(make_settings(**table), folders))

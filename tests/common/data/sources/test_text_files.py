"""A site's own texts: three formats, and errors that name file, line and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from common.config import DataSettings, SettingsError
from common.data import DataError
from common.data.texts.hashed_words import hashed
from common.node import Folders
from tests.common.data.sources.loading import load, source

VOCABULARY = 500


def settings(**overrides: Any) -> DataSettings:
    given = {"num-classes": 2, "vocabulary-size": VOCABULARY, "max-length": 4, **overrides}
    return source("text", **given)


def write(folders: Folders, name: str, content: str | bytes) -> None:
    blob = content if isinstance(content, bytes) else content.encode()
    (folders.data / name).write_bytes(blob)


def ids(*texts: str) -> list[list[int]]:
    return [(hashed(text, VOCABULARY)[:4] + [0] * 4)[:4] for text in texts]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", 'text\tlabel\nhe said "no"\t0\nall is well that ends\t1\n'),
        ("train.tsv", 'label\tid\ttext\r\n0\tx\the said "no"\r\n1\ty\tall is well that ends'),
        ("train.csv", 'label,text\n0,"he said ""no"""\n\n1,"all is\nwell that ends"\n'),
        ("train.csv", b"\xef\xbb\xbf" + b'text,label\r\n"he said ""no""", 0\r\nall is well that,1'),
        (
            "train.jsonl",
            '{"text": "he said \\"no\\"", "label": 0}\n\n'
            '{"label": "1", "text": "all is well that"}',
        ),
    ],
)
def test_all_formats_give_the_ids_of_words_and_labels(
    folders: Folders, name: str, content: str | bytes
) -> None:
    write(folders, name, content)
    arrays = load(settings(), folders)
    assert arrays.x.tolist() == ids('he said "no"', "all is well that")
    assert (arrays.x.dtype, arrays.y.tolist()) == (np.int32, [0, 1])


def test_columns_may_be_numbers_and_labels_names(folders: Folders) -> None:
    write(folders, "train.tsv", "NUM\tdate\tWhen ?\nLOC\tcity\tWhere ?\n")
    write(folders, "test.tsv", "LOC\tcity\tWhere ?\n")
    chosen = settings(**{"text-column": 3, "label-column": 1, "class-names": "LOC,NUM"})
    assert load(chosen, folders).y.tolist() == [1, 0]
    assert load(chosen, folders, "test").x.tolist() == ids("Where ?")
    turned = settings(**{"text-column": 3, "label-column": 1, "class-names": "NUM,LOC"})
    assert load(turned, folders).y.tolist() == [0, 1], "the cache knows how a file was read"
    other = settings(**{"text-column": "2", "label-column": "1", "class-names": "LOC,NUM"})
    assert load(other, folders).x.tolist() == ids("date", "city")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("train.tsv", "text\tlabel\nfine\t0\n\t1\n", r"train.tsv: 1 of 2 .* line 3: its text is e"),
        (
            "train.tsv",
            "text\tlabel\n  \t0\nb\t7\n",
            r"2 of 2 .*; line 3: its label is '7'",
        ),
        ("train.tsv", "text\tlabel\na\t-1\n", "its label is '-1'"),
        ("train.tsv", "text\tlabel\na\tb\tc\n", r"train.tsv, line 2: it has 3 fields, .* has 2"),
        ("train.tsv", "note\tlabel\na\t0\n", r"must name the columns, 'text' .* 'note', 'label'"),
        ("train.csv", 'text,label\n"open,0\nb,1\n', r"train.csv, line 3: .*in quotes"),
        ("train.csv", b"text,label\ncaf\xe9,0\n", r"train.csv, line 2: byte 0xe9 is not UTF-8"),
        ("train.csv", "text,label\na,0\n".encode("utf-16"), "line 1: byte 0xff is not UTF-8"),
        ("train.csv", b"text,label\na\0,0\n", "line 2: it holds a zero byte"),
        ("train.csv", "text,label\na,cat\n", "without data.class-names labels are whole numbers"),
        ("train.jsonl", '{"text": "a", "label": 0}\n{"text"\n', "train.jsonl, line 2: it is no JS"),
        ("train.jsonl", '{"text": "a"}\n', r"line 1: an object with 'text' and 'label' is needed"),
        ("train.jsonl", '{"text": 5, "label": 0}\n', "'text' must be a string"),
        ("train.jsonl", '{"text": "a", "label": true}\n', "'label' a string or a number, found"),
    ],
)
def test_what_can_t_be_used_is_named_with_file_and_line(
    folders: Folders, name: str, content: str | bytes, reason: str
) -> None:
    write(folders, name, content)
    with pytest.raises(DataError, match=reason):
        load(settings(), folders)


def test_a_label_that_is_no_class_is_named_with_those_that_are(folders: Folders) -> None:
    write(folders, "train.jsonl", json.dumps({"text": "a", "label": "dgo"}))
    with pytest.raises(DataError, match=r"line 1: its label is 'dgo', and .* are cat, dog"):
        load(settings(**{"class-names": "cat,dog"}), folders)


def test_a_number_too_many_for_the_line_is_said(folders: Folders) -> None:
    write(folders, "train.tsv", "a\t0\n")
    with pytest.raises(DataError, match=r"label-column 3, and its first line has 2 fields"):
        load(settings(**{"text-column": 1, "label-column": 3}), folders)


def test_no_file_and_two_files_are_refused(folders: Folders) -> None:
    with pytest.raises(DataError, match=r"for train.tsv, train.csv or train.jsonl. Put one there"):
        load(settings(), folders)
    write(folders, "train.tsv", "text\tlabel\na\t0\n")
    write(folders, "train.csv", "text,label\na,0\n")
    with pytest.raises(DataError, match=r"has train.tsv and train.csv: which one is meant"):
        load(settings(), folders)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"text-column": "label"}, "two different names"),
        ({"text-column": 1}, "two different names, or two different numbers"),
        ({"text-column": 1, "label-column": 0}, "numbered from 1"),
        ({"tokenizer": "bert.json"}, "data.tokenizer and data.tokenizer-sha256 go together"),
        ({"tokenizer": "../x.json", "tokenizer-sha256": "0" * 64}, "data.tokenizer: String should"),
        ({"num-classes": 0}, "needs the number of classes"),
        ({"image-shape": "1x8x8"}, "has its own shape"),
        ({"kind": "tokens"}, "leave it 'image'"),
        ({"class-names": "cat, dog"}, "labels separated by commas"),
    ],
)
def test_settings_that_do_not_fit_texts_are_refused(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        settings(**overrides)
    settings()

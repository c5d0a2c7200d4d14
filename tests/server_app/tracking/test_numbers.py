"""From a line to numbers, and reading a file that grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server_app.tracking.growing_file import MetricsFile, whole_lines
from server_app.tracking.numbers import numbers_of
from tests.server_app.tracking.rounds import line_of, write_rounds


def test_every_number_of_a_line_is_named_by_its_place_and_lists_of_clients_are_counted() -> None:
    found = {number.name: number.value for number in numbers_of(line_of(2))}
    assert found == {
        "train/loss": 0.5, "train/num-examples": 90.0,
        "clients/mean": 0.75, "clients/std": 0.25, "clients/worst/accuracy": 0.5,
        "clients/loss": 0.5, "clients/per-client/a": 1.0, "clients/per-client/b": 0.5,
        "global/accuracy": 0.8, "global/loss": 0.4, "global/examples": 10.0,
        "global/per-class/0": 0.5,
        "participants": 2.0, "refused": 1.0, "missing": 0.0, "excluded": 0.0, "dropped": 0.0,
        "unreadable": 0.0, "update-norm": 0.5, "update-norms/a": 1.5, "update-norms/b": 2.5,
        "clipped": 0.0, "alarms": 0.0, "bytes/sent": 100.0, "bytes/received": 50.0,
        "seconds/train": 1.5, "seconds/total": 2.0,
    }  # fmt: skip
    assert {number.step for number in numbers_of(line_of(2))} == {2}


def test_texts_nulls_truths_and_tables_are_no_numbers() -> None:
    line = {
        "round": 1,
        "train": {"loss": None, "why": "text", "yes": True},
        "global": {
            "confusion-matrix": [[1, 2], [3, 4]],
            "calibration": [{"confidence": 0.5}],
            "undefined": {"auroc": "one class only"},
        },
    }
    assert list(numbers_of(line)) == []


def test_a_file_that_grows_gives_each_whole_line_once(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    assert list(file.new()) == []
    write_rounds(tmp_path, [line_of(1), line_of(2)])
    assert [line["round"] for line in file.new()] == [1, 2]
    half = json.dumps(line_of(3))
    with file.path.open("a") as out:
        out.write(half[:50])
    assert list(file.new()) == []
    with file.path.open("a") as out:
        out.write(half[50:] + "\n")
    assert [line["round"] for line in file.new()] == [3]
    file.rewind()
    assert [line["round"] for line in file.new()] == [1, 2, 3]


@pytest.mark.parametrize(
    "text", ["{", "null", '{"round": 3}', '{"round": true}', "[]", "\udcff", '{"round": 1}']
)
def test_lines_end_before_one_that_is_damaged_or_not_of_the_next_round(
    tmp_path: Path, text: str
) -> None:
    write_rounds(tmp_path, [line_of(1)])
    path = tmp_path / "metrics.jsonl"
    more = f"{text}\n{json.dumps(line_of(2))}\n".encode("utf-8", "surrogateescape")
    path.write_bytes(path.read_bytes() + more)
    assert [line["round"] for line in whole_lines(path)] == [1]

"""The time that is left is estimated from the rounds that were played."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.moonflower.durations import duration
from scripts.moonflower.research.reproduce.record import Record, read_record
from scripts.moonflower.research.reproduce.remaining import remaining_seconds, seconds_per_round
from tests.scripts.research.reproduce.tables import cells, line, write_run


def test_each_cell_is_as_fast_as_itself_else_its_row_else_all(tmp_path: Path) -> None:
    # Per column: FedAvg, MOON; 4 rounds each. FedAvg at 0.1 has one round of 10 s.
    records = []
    for number, cell in enumerate(cells(seeds=(0,))):
        if number == 0:
            write_run(tmp_path, cell, [0.5], seconds=10.0)
        records.append(read_record(cell, tmp_path))
    # 3 rounds are left of the first, 4 of each other one, all at 10 s.
    assert remaining_seconds(records, records, jobs=1) == (3 + 4 + 4 + 4) * 10.0
    write_run(tmp_path, records[1].cell, [0.5], seconds=30.0)
    records[1] = read_record(records[1].cell, tmp_path)
    # FedAvg 3 * 10 and 4 * 10, MOON 3 * 30 and 4 * 30.
    assert remaining_seconds(records, records, jobs=1) == 30 + 40 + 90 + 120
    assert remaining_seconds(records, records, jobs=2) == 140
    # With many jobs, the slowest cell is what one waits for.
    assert remaining_seconds(records, records, jobs=8) == 120
    # A row without any round is as fast as the mean of the cells that have one: 20 s.
    waiting = [record for record in records if record.cell.column.name == "1"]
    known = [record for record in records if record.cell.row.name == "fedavg-a"]
    assert remaining_seconds(waiting, known, jobs=1) == 40 + 40


def test_without_a_round_nothing_is_known(tmp_path: Path) -> None:
    records = [read_record(cell, tmp_path) for cell in cells()]
    assert remaining_seconds(records, records, jobs=1) is None


def test_the_last_20_rounds_say_how_fast_it_is() -> None:
    lines = [line(number, 0.5, 100.0 if number <= 10 else 2.0) for number in range(1, 31)]
    assert seconds_per_round(Record(cells()[0], exists=True, lines=lines)) == 2.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89.0, "89 s"), (90.0, "2 min"), (5340.0, "89 min"), (12180.0, "3 h 23 min")],
)
def test_durations_are_said_briefly(seconds: float, text: str) -> None:
    assert duration(seconds) == text

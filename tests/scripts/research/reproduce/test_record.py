"""What a cell has left on disk is read, whole or torn, and only if it is this cell's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.config import SettingsError
from scripts.moonflower.research.reproduce.record import (
    read_record,
    refuse_other_settings,
    refuse_shorter,
    seeds_on_disk,
)
from tests.scripts.research.reproduce.tables import cells, request, write_run


def write_settings(runs: Path, **changes: Any) -> None:
    """Write settings.json of the first cell, changed."""
    (cell, *_) = cells()
    settings = cell.plan.settings.model_dump(by_alias=True)
    folder = runs / cell.experiment
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"settings": {**settings, **changes}}))


def test_a_cell_that_was_not_begun_has_no_folder(tmp_path: Path) -> None:
    record = read_record(cells()[0], tmp_path)
    assert (record.exists, record.rounds, record.finished) == (False, 0, False)


def test_a_cell_is_finished_with_its_last_round(tmp_path: Path) -> None:
    cell = cells()[0]
    for rounds, finished in ((3, False), (4, True)):
        write_run(tmp_path, cell, [0.5] * rounds, seconds=2.0)
        record = read_record(cell, tmp_path)
        assert (record.exists, record.rounds, record.finished) == (True, rounds, finished)
        assert record.seconds == 2.0 * rounds


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    cell = cells()[0]
    write_run(tmp_path, cell, [0.5, 0.6])
    path = tmp_path / cell.experiment / "metrics.jsonl"
    whole = path.read_text()
    for torn in (whole[:-5], whole[:-1][:-1], whole + '{"round": 3, "global": {"accuracy": 0.7}'):
        path.write_text(torn)
        assert read_record(cell, tmp_path).rounds == (2 if torn.startswith(whole) else 1)


@pytest.mark.parametrize(
    "damage", [b"5", b'{"a": 1}', b"\xff\xfe", b'{"round": 3}', b'{"round": 1}', b"[1]"]
)
def test_rounds_count_up_to_a_damaged_line(tmp_path: Path, damage: bytes) -> None:
    cell = cells()[0]
    write_run(tmp_path, cell, [0.5, 0.6, 0.7, 0.8])
    path = tmp_path / cell.experiment / "metrics.jsonl"
    first, _, *others = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, damage, *others, b""]))
    record = read_record(cell, tmp_path)
    assert (record.rounds, record.finished) == (1, False)


def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    cell = cells()[0]
    (tmp_path / cell.experiment / "metrics.jsonl").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"metrics\.jsonl can't be read"):
        read_record(cell, tmp_path)


def test_the_seeds_of_a_table_are_found_where_it_was_run(tmp_path: Path) -> None:
    assert seeds_on_disk(request(), tmp_path / "none") == set()
    for name in (
        "two.moon-a.0.1.seed-7",
        "two.fedavg-a.1.seed-12",
        "two-small.moon-a.0.1.seed-5",  # of another scale
        "two.moon-b.0.1.seed-6",  # no row of it
        "two.moon-a.0.1.seed-8.log",
    ):
        (tmp_path / name).mkdir()
    assert seeds_on_disk(request(), tmp_path) == {7, 12}


def test_a_run_with_other_clients_is_refused(tmp_path: Path) -> None:
    server = cells()[0].plan.settings.server.model_dump(by_alias=True)
    write_settings(tmp_path, server=server | {"min-clients": 3})
    with pytest.raises(SettingsError, match="was started with 3 clients, and the table has 20"):
        refuse_other_settings(cells()[0], tmp_path)


def test_of_a_longer_run_only_the_rounds_that_are_asked_for_count(tmp_path: Path) -> None:
    longer, shorter = cells(rounds=4)[0], cells(rounds=2)[0]
    write_run(tmp_path, longer, [0.1, 0.2, 0.3, 0.4])
    record = read_record(shorter, tmp_path)
    assert record.finished
    assert [each["global"]["accuracy"] for each in record.lines] == [0.1, 0.2]


@pytest.mark.parametrize("rounds", [1, 4, 900])
def test_other_numbers_of_rounds_are_the_same_cell(tmp_path: Path, rounds: int) -> None:
    write_settings(tmp_path, **{"num-rounds": rounds})
    refuse_other_settings(cells()[0], tmp_path)  # is not refused
    write_settings(tmp_path, seed=5, **{"num-rounds": rounds})
    with pytest.raises(SettingsError) as caught:
        refuse_other_settings(cells()[0], tmp_path)
    assert "seed: started with 5" in str(caught.value)
    assert "num-rounds: started with" not in str(caught.value)


def test_a_cell_that_is_to_go_on_can_not_be_made_shorter(tmp_path: Path) -> None:
    cell = cells()[0]  # of 4 rounds
    write_settings(tmp_path, **{"num-rounds": 4})
    refuse_shorter(cell, tmp_path)
    write_settings(tmp_path, **{"num-rounds": 5})
    with pytest.raises(SettingsError, match=r"begun with 5 rounds .* --rounds 5"):
        refuse_shorter(cell, tmp_path)
    # What is asked for was played already: nothing is to go on.
    write_run(tmp_path, cell, [0.5] * 4)
    refuse_shorter(cell, tmp_path)


def test_a_run_with_other_settings_is_refused_with_their_names(tmp_path: Path) -> None:
    write_settings(tmp_path, seed=5)
    with pytest.raises(SettingsError, match="seed: started with 5, now 0") as caught:
        refuse_other_settings(cells()[0], tmp_path)
    assert "--output" in str(caught.value)

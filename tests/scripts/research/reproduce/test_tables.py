"""The tables in scripts/tables: every cell can be run, and measures what its score asks for."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import check_name
from scripts.moonflower.research.reproduce.cells import Cell, Request, cells_of, select
from scripts.moonflower.research.reproduce.table_file import read_table, table_names

EVERY = [(name, scale) for name in table_names() for scale in ("paper", *read_table(name).scales)]


def cells(name: str, scale: str = "paper", seeds: tuple[int, ...] = (0,)) -> list[Cell]:
    """Return the cells of a table."""
    return cells_of(Request(name, read_table(name), scale, seeds))


def column_of(name: str, row: str, key: str) -> list[Any]:
    """Return a setting (as ``data.alpha``) in each cell of a row."""
    found = []
    for cell in cells(name):
        if cell.row.name == row:
            value: Any = cell.plan.settings
            for part in key.split("."):
                value = getattr(value, part)
            found.append(value)
    return found


def test_the_tables_are_these() -> None:
    wanted = ["fedgen-head-only", "fedgen-mnist", "moon-ablation", "moon-cifar10", "moon-cifar100"]
    assert table_names() == wanted


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_all_settings_of_all_cells_parse_and_names_are_different(name: str, scale: str) -> None:
    table = read_table(name)
    found = cells(name, scale, tuple(table.seeds))
    assert len(found) == len(table.rows) * len(table.columns) * 3
    names = {check_name(cell.experiment, "experiment") for cell in found}
    assert len(names) == len(found)


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_run_measures_the_number_that_counts(name: str, scale: str) -> None:
    for cell in cells(name, scale):
        settings, score = cell.plan.settings, cell.score
        assert settings.data.client_test == score.protocol
        if score.number == "global.accuracy":
            assert settings.model.sharing == "all"
            assert settings.model.batch_norm_buffers == "averaged"
        else:
            assert settings.server.fraction_evaluate == 1.0


def test_fedgen_mnist_has_three_algorithms_in_both_presets_at_three_alphas() -> None:
    for preset, buffers in (("official", "local"), ("paper", "averaged")):
        for algorithm in ("fedavg", "fedprox", "fedgen"):
            row = f"{algorithm}-{preset}"
            assert column_of("fedgen-mnist", row, "algorithm") == [algorithm] * 3
            assert column_of("fedgen-mnist", row, "data.alpha") == [0.05, 0.1, 1.0]
            assert column_of("fedgen-mnist", row, "model.batch_norm_buffers") == [buffers] * 3
            assert column_of("fedgen-mnist", row, "num_rounds") == [200] * 3


def test_solo_trains_for_300_epochs_and_shares_nothing() -> None:
    for name in ("moon-cifar10", "moon-cifar100"):
        (rounds,) = column_of(name, "solo", "num_rounds")
        (epochs,) = column_of(name, "solo", "train.local_epochs")
        assert rounds * epochs == 300
        assert column_of(name, "solo", "model.sharing") == ["nothing"]


def test_only_fedavg_is_fedavg_though_solos_algorithm_is_fedavg_too() -> None:
    assert [cell.row.name for cell in select(cells("moon-cifar10"), ["fedavg"])] == ["fedavg"]


def test_solo_trains_as_many_epochs_as_the_others_at_the_small_scale() -> None:
    found = cells("moon-cifar10", "small")
    epochs = {
        each.plan.settings.num_rounds * each.plan.settings.train.local_epochs for each in found
    }
    assert len(epochs) == 1


def test_the_ablation_changes_one_number_in_each_row() -> None:
    (default, *others) = cells("moon-ablation")
    start = default.plan.settings.model_dump()
    for other in others:
        changed = {
            f"{table}.{key}" if isinstance(values, dict) else table
            for table, values in other.plan.settings.model_dump().items()
            for key in (values if isinstance(values, dict) else [""])
            if (values[key] if key else values) != (start[table][key] if key else start[table])
        } - {"experiment"}
        assert len(changed) == 1, (other.row.name, changed)

"""The table holds the paper's numbers, ours, and how they came about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scripts.moonflower.research.reproduce.cells import cells_of
from scripts.moonflower.research.reproduce.curves import band, draw
from scripts.moonflower.research.reproduce.markdown import render
from scripts.moonflower.research.reproduce.record import read_record
from scripts.moonflower.research.reproduce.table_file import Table
from tests.scripts.research.reproduce.tables import TABLE, cells, request, write_run


def rendered(runs: Path) -> str:
    """Return the table of what is in ``runs``."""
    records = [read_record(cell, runs) for cell in cells()]
    return render(request(), records, "moonflower reproduce two", ["Machine: 2 cores"])


def test_means_and_deviations_stand_next_to_the_papers(tmp_path: Path) -> None:
    by_name = {cell.experiment: cell for cell in cells()}
    # The last round of each counts: 88 and 90, mean 89, std sqrt((1 + 1) / 1) = 1.41.
    write_run(tmp_path, by_name["two.fedavg-a.0.1.seed-0"], [0.1, 0.2, 0.99, 0.88])
    write_run(tmp_path, by_name["two.fedavg-a.0.1.seed-1"], [0.1, 0.2, 0.99, 0.90])
    # The two best of this one: (70 + 80) / 2.
    write_run(tmp_path, by_name["two.moon-a.1.seed-1"], [0.7, 0.6, 0.8, 0.5])
    # Not finished: counts for nothing.
    write_run(tmp_path, by_name["two.moon-a.1.seed-0"], [0.99])
    lines = rendered(tmp_path).splitlines()
    assert "|  | alpha 0.1: paper | alpha 0.1: here | alpha 1: paper | alpha 1: here |" in lines
    assert "| FedAvg | 90.00 ± 0.50 | 89.00 ± 1.41 (2 runs) | 95.00 | - |" in lines
    assert "| MOON | - | - | - | 75.00 (1 run) |" in lines
    assert "| two.moon-a.1.seed-1 | 75.00 | 50.00 | 80.00 (3) | 4 | 40 s |" in lines
    assert "3 of 8 runs are finished, 2 min of rounds together." in lines


def test_source_rules_notes_command_and_machine_are_said(tmp_path: Path) -> None:
    text = rendered(tmp_path)
    for part in (
        "A paper, Table 1",
        "FedAvg: protocol `global`",
        "MOON: protocol `global`",
        "mean of the 2 best rounds",
        "(its code)",
        "* A note.",
        "Scale `paper`, 4 rounds, seeds 0, 1.",
        "`moonflower reproduce two`",
        "Machine: 2 cores",
    ):
        assert part in text


def test_signs_of_markdown_and_of_mathematics_are_text(tmp_path: Path) -> None:
    described = TABLE.model_dump()
    described["title"] = described["columns"][0]["label"] = "cost $\\frac$ x"
    described["rows"][0]["label"] = "$|x$"
    this = replace(request(), table=Table.model_validate(described))
    for cell in cells_of(this):
        write_run(tmp_path, cell, [0.5])
    records = [read_record(cell, tmp_path) for cell in cells_of(this)]
    assert draw(this, records).startswith(b"\x89PNG")
    assert "| $\\|x$ | 90.00" in render(this, records, "", [])


def test_curves_are_means_with_a_band_from_lowest_to_highest() -> None:
    rounds, low, mean, high = band([[(1, 25.0), (2, 50.0)], [(1, 75.0)]])
    assert (rounds, low, mean, high) == ([1, 2], [25, 50], [50, 50], [75, 50])


def test_a_png_is_drawn_with_and_without_runs(tmp_path: Path) -> None:
    sizes = []
    for accuracies in ([], [0.1, 0.5, 0.9]):
        for cell in cells() if accuracies else []:
            write_run(tmp_path, cell, accuracies)
        image = draw(request(), [read_record(cell, tmp_path) for cell in cells()])
        assert image.startswith(b"\x89PNG\r\n\x1a\n")
        sizes.append(len(image))
    assert sizes[1] > sizes[0]


def test_a_column_without_runs_has_no_panel(tmp_path: Path) -> None:
    cell = cells()[0]
    write_run(tmp_path, cell, [0.1, 0.5])
    some = draw(request(), [read_record(each, tmp_path) for each in cells()])
    for each in cells():
        write_run(tmp_path, each, [0.1, 0.5])
    every = draw(request(), [read_record(each, tmp_path) for each in cells()])
    # The width in pixels is the first number of a PNG's header; 5 inches at 120 dots a panel.
    assert [int.from_bytes(image[16:20], "big") for image in (some, every)] == [600, 1200]

"""Numbers become places, however many they are."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from scripts.moonflower.pages.heat_map import COLOURS, heat_map
from scripts.moonflower.pages.line_chart import (
    BOTTOM,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    Band,
    Curve,
    line_chart,
    thinned,
)
from scripts.moonflower.pages.scales import scale_of, size_text, text_of, time_text
from scripts.moonflower.pages.timeline import rounds_text, timeline
from scripts.moonflower.pages.watch import sparkline


def test_a_curve_runs_from_corner_to_corner_and_a_gap_interrupts_it() -> None:
    points = [(1, 0.0), (2, 0.5), (3, None), (5, 1.0)]
    chart = line_chart("t", [Curve("c", points)])
    assert chart is not None
    middle = LEFT + (RIGHT - LEFT) / 4
    assert chart.lines[0].path == (
        f"M{LEFT:.1f} {BOTTOM:.1f}h0L{middle:.1f} {(TOP + BOTTOM) / 2:.1f}M{RIGHT:.1f} {TOP:.1f}h0"
    )
    assert chart.description == "c: 0.000 in round 1, 1.000 in round 5."


def test_without_a_number_there_is_no_picture() -> None:
    assert line_chart("t", [Curve("c", [(1, None)])]) is None
    assert timeline("t", [1], {"alarm": []}) is None


def test_thinning_keeps_every_extreme_in_its_place() -> None:
    points = [(n, 0.5) for n in range(1, 2001)]
    points[777] = (778, 9.0)
    points[1234] = (1235, -9.0)
    kept = thinned(points, 10)
    assert len(kept) <= MOST_POINTS
    assert {(778, 9.0), (1235, -9.0)} <= set(kept)
    assert list(kept) == sorted(kept)
    chart = line_chart("t", [Curve("c", points)], [Band("b", [(n, 0, 1) for n in range(2000)])])
    assert chart is not None
    assert "Of every 10 rounds" in chart.note
    assert len(chart.lines[0].path) < 20 * MOST_POINTS


@pytest.mark.parametrize(
    ("numbers", "ends", "is_log"),
    [
        ([0.1, 0.9], (0.0, 1.0), False),
        ([90.0, 95.0], (90.0, 96.0), False),
        ([0.001, 1000.0], (0.001, 1000.0), True),
        ([5.0, 5.0], (2.0, 8.0), False),
        ([], (0.0, 1.0), False),
    ],
)
def test_an_axis_holds_all_numbers_between_round_ends(
    numbers: list[float], ends: tuple[float, float], is_log: bool
) -> None:
    scale = scale_of(numbers, 0, 100)
    assert (pytest.approx(scale.low), pytest.approx(scale.high)) == ends
    assert scale.is_log == is_log
    assert all(-1e-9 <= scale(n) <= 100 + 1e-9 for n in numbers)


def test_a_heat_map_is_one_picture_with_a_dot_for_each_number() -> None:
    found = heat_map(
        "t", ["a", "b"], ["1", "2"], [[0.0, 1.0], [None, 1.0]],
        row_axis="client", column_axis="round", description="d",
    )  # fmt: skip
    assert found is not None
    blob = base64.b64decode(found.image.removeprefix("data:image/png;base64,"))
    image = Image.open(io.BytesIO(blob)).convert("RGBA")
    assert image.size == (2, 2)
    assert image.getpixel((0, 0)) == (*COLOURS[0], 255)
    assert image.getpixel((1, 1)) == (*COLOURS[-1], 255)
    transparent = image.getpixel((0, 1))
    assert isinstance(transparent, tuple)
    assert transparent[3] == 0
    assert [text for _, _, text, _ in found.numbers] == [".000", "1.000", "1.000"]


def test_two_thousand_rounds_of_two_hundred_clients_are_a_small_picture() -> None:
    cells = [[(i * j % 97) / 97 for j in range(2000)] for i in range(200)]
    names = [f"client-{n}" for n in range(200)]
    rounds = [str(n) for n in range(2000)]
    found = heat_map("t", names, rounds, cells, row_axis="", column_axis="", description="")
    assert found is not None
    assert len(found.image) < 200_000
    assert "mean of up to 5 rounds" in found.note
    assert len(found.rows) <= 42


def test_words_for_numbers() -> None:
    assert [text_of(n) for n in (None, 3.0, 0.12345)] == ["-", "3", "0.123"]
    assert [size_text(n) for n in (12, 1500, 2.5e9)] == ["12 B", "1.5 kB", "2.5 GB"]
    assert [time_text(n) for n in (1.25, 100, 3700)] == ["1.2 s", "1 min 40 s", "1 h 1 min"]
    assert rounds_text([5, 1, 2, 3, 3]) == "1-3, 5"


def test_a_sparkline_is_no_longer_than_it_may_be() -> None:
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline([float(n) for n in range(500)], 60)) <= 60

"""Tables of numbers as colours: one small PNG, whatever their size, with labels around it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.moonflower.pages.scales import score_text, text_of

WIDTH = 440
MOST_COLUMNS = 400
MOST_NUMBERS = 300
"""Cells up to which their numbers are written into them."""
LABELS = 42
"""Rows up to which each has its name beside it."""
LONGEST_NAME = 17

COLOURS = (
    (0, 34, 78), (33, 61, 108), (76, 85, 107), (108, 110, 114), (141, 136, 120),
    (175, 164, 111), (211, 193, 95), (254, 232, 56),
)  # fmt: skip
"""Cividis: even for those who see no red or green, and on light and dark paper."""

Cells = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class Label:
    """A text at a place along an edge; ``whole`` where it was shortened."""

    place: float
    text: str
    whole: str


@dataclass(frozen=True)
class HeatMap:
    """A picture of a table, ready to be drawn.

    Attributes
    ----------
    title, description, note : str
    image : str
        PNG as a data URI: a dot per cell, clear where there is no number.
    left, top, right, bottom, height : float
        Where the image is, and how high the picture.
    rows, columns : list[Label]
    numbers : list
        (x, y, text, whether on a dark cell), where there is room for them.
    low, high : str
        What the two ends of the colours stand for.
    row_axis, column_axis : str
    """

    title: str
    description: str
    note: str
    image: str
    left: float
    top: float
    right: float
    bottom: float
    height: float
    rows: list[Label]
    columns: list[Label]
    numbers: list[tuple[float, float, str, bool]]
    low: str
    high: str
    row_axis: str
    column_axis: str
    kind: str = "heat"


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Cells,
    *,
    row_axis: str,
    column_axis: str,
    description: str,
    ends: tuple[float, float] | None = None,
    is_count: bool = False,
) -> HeatMap | None:
    """Return a picture of ``cells`` (rows of columns); None if they hold no number.

    Parameters
    ----------
    ends : tuple or None
        Numbers at the two ends of the colours; None: the least and the largest.
    is_count : bool
        Whether numbers are whole and begin at 0.
    """
    known = [n for row in cells for n in row if n is not None]
    if not known:
        return None
    low, high = ends or ((0.0 if is_count else min(known)), max(known))
    written = len(rows) * len(columns) <= MOST_NUMBERS and len(columns) <= 14
    step = -(-len(columns) // MOST_COLUMNS)
    note = f"A column is the mean of up to {step} rounds." if step > 1 else ""
    names = [_shortened(name) for name in rows]
    left = 14 + 6.1 * max((len(name) for name in names), default=0)
    row_height = 18.0 if len(rows) <= 14 else max(2.0, min(14.0, 420 / len(rows)))
    top, right = 8.0, WIDTH - 8.0
    bottom = top + row_height * len(rows)
    place_x = [left + (n + 0.5) * (right - left) / len(columns) for n in range(len(columns))]
    place_y = [top + (n + 0.5) * row_height for n in range(len(rows))]
    say = text_of if is_count else score_text
    numbers = [
        (place_x[j], place_y[i], say(n).removeprefix("0") if not is_count and n < 1 else say(n),
         _share(n, low, high) < 0.55)
        for i, row in enumerate(cells) for j, n in enumerate(row) if n is not None
    ] if written else []  # fmt: skip
    every = max(1, -(-len(rows) // LABELS))
    return HeatMap(
        title,
        description,
        note,
        _png(_columns_thinned(cells, step), low, high),
        left,
        top,
        right,
        bottom,
        bottom + 52,
        [Label(place_y[n], names[n], rows[n]) for n in range(0, len(rows), every)],
        _column_labels(columns, place_x, (right - left)),
        numbers,
        say(low),
        say(high),
        row_axis,
        column_axis,
    )


def _column_labels(columns: Sequence[str], places: Sequence[float], width: float) -> list[Label]:
    longest = max(len(name) for name in columns)
    room = max(1, int(width / (5.6 * min(longest, 9) + 4)))
    every = max(1, -(-len(columns) // room))
    return [
        Label(places[n], _shortened(columns[n], 9), columns[n])
        for n in range(0, len(columns), every)
    ]


def _shortened(name: str, longest: int = LONGEST_NAME) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _columns_thinned(cells: Cells, step: int) -> Cells:
    if step <= 1:
        return cells

    def mean(group: Sequence[float | None]) -> float | None:
        known = [n for n in group if n is not None]
        return sum(known) / len(known) if known else None

    return [[mean(row[n : n + step]) for n in range(0, len(row), step)] for row in cells]


def _share(number: float, low: float, high: float) -> float:
    if high <= low:
        return 1.0
    return min(1.0, max(0.0, (number - low) / (high - low)))


def _colour(number: float | None, low: float, high: float) -> tuple[int, int, int, int]:
    if number is None:
        return (0, 0, 0, 0)
    at = _share(number, low, high) * (len(COLOURS) - 1)
    index = min(int(at), len(COLOURS) - 2)
    red, green, blue = (
        round(a + (at - index) * (b - a))
        for a, b in zip(COLOURS[index], COLOURS[index + 1], strict=True)
    )
    return (red, green, blue, 255)


def _png(cells: Cells, low: float, high: float) -> str:
    from PIL import Image

    image = Image.new("RGBA", (max(len(row) for row in cells), len(cells)))
    image.putdata([_colour(number, low, high) for row in cells for number in row])
    file = io.BytesIO()
    image.quantize(64).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()

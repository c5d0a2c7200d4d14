"""Curves over rounds: where their points are, thinned out so that a page stays small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scripts.moonflower.pages.scales import Scale, rounds_scale, scale_of, score_text

WIDTH, HEIGHT = 440, 224
LEFT, RIGHT, TOP, BOTTOM = 46, 426, 10, 196
MOST_POINTS = 400
"""Of a curve; more are not seen on a picture of this width."""

Points = Sequence[tuple[int, float | None]]


@dataclass(frozen=True)
class Curve:
    """A line: (round, number) ascending; a None interrupts it."""

    name: str
    points: Points


@dataclass(frozen=True)
class Band:
    """An area between two numbers of each round: (round, low, high)."""

    name: str
    points: Sequence[tuple[int, float, float]]


@dataclass(frozen=True)
class Stroke:
    """What is drawn of a curve or band: its SVG path, and which of the styles, from 0."""

    name: str
    path: str
    style: int


@dataclass(frozen=True)
class LineChart:
    """A picture of curves, ready to be drawn.

    Attributes
    ----------
    title, description : str
        The description says the picture in words.
    x_ticks, y_ticks : list
        (place, text).
    lines, areas : list[Stroke]
    note : str
        What a reader should know, such as that curves are thinned out; or "".
    """

    title: str
    description: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    lines: list[Stroke]
    areas: list[Stroke]
    note: str
    x_label: str = "round"
    kind: str = "lines"


def line_chart(
    title: str, curves: Iterable[Curve], bands: Sequence[Band] = (), x_label: str = "round"
) -> LineChart | None:
    """Return a picture of curves and bands; None if they hold no number."""
    known = [each for each in curves if any(y is not None for _, y in each.points)]
    bands = [band for band in bands if band.points]
    if not known and not bands:
        return None
    rounds = [x for curve in known for x, _ in curve.points]
    rounds += [x for band in bands for x, *_ in band.points]
    numbers = [y for curve in known for _, y in curve.points if y is not None]
    numbers += [y for band in bands for _, *ends in band.points for y in ends]
    x, y = rounds_scale(rounds, LEFT, RIGHT), scale_of(numbers, BOTTOM, TOP)
    longest = max([len(c.points) for c in known] + [len(b.points) for b in bands])
    step = max(1, -(-2 * longest // MOST_POINTS)) if longest > MOST_POINTS else 1
    notes = []
    if y.is_log:
        notes.append("The scale is logarithmic.")
    if step > 1:
        notes.append(f"Of every {step} rounds the lowest and the highest are drawn.")
    return LineChart(
        title,
        _in_words(known, bands),
        x.ticks(),
        y.ticks(),
        [Stroke(c.name, _line(thinned(c.points, step), x, y), n) for n, c in enumerate(known)],
        [Stroke(b.name, _area(_thinned_band(b.points, step), x, y), 0) for b in bands],
        " ".join(notes),
        x_label,
    )


def thinned(points: Points, step: int) -> Points:
    """Return of every ``step`` points the lowest and the highest, in their order.

    A None stays where all of them are.
    """
    if step <= 1:
        return points
    kept: list[tuple[int, float | None]] = []
    for begin in range(0, len(points), step):
        group = points[begin : begin + step]
        numbers = [(y, x) for x, y in group if y is not None]
        if not numbers:
            kept.append((group[0][0], None))
            continue
        ends = sorted({min(numbers), max(numbers)}, key=lambda each: each[1])
        kept += [(round_number, number) for number, round_number in ends]
    return kept


def _thinned_band(
    points: Sequence[tuple[int, float, float]], step: int
) -> list[tuple[int, float, float]]:
    groups = [points[begin : begin + step] for begin in range(0, len(points), step)]
    return [
        (group[len(group) // 2][0], min(p[1] for p in group), max(p[2] for p in group))
        for group in groups
    ]


def _line(points: Points, x: Scale, y: Scale) -> str:
    parts, pen_up = [], True
    for place, number in points:
        if number is None:
            pen_up = True
            continue
        # After a move a line of no length: a point alone is a dot.
        parts.append(
            f"{'M' if pen_up else 'L'}{x(place):.1f} {y(number):.1f}{'h0' if pen_up else ''}"
        )
        pen_up = False
    return "".join(parts)


def _area(points: Sequence[tuple[int, float, float]], x: Scale, y: Scale) -> str:
    there = [f"{x(place):.1f} {y(high):.1f}" for place, _, high in points]
    back = [f"{x(place):.1f} {y(low):.1f}" for place, low, _ in reversed(points)]
    return "M" + "L".join([*there, *back]) + "Z"


def _in_words(curves: Sequence[Curve], bands: Sequence[Band]) -> str:
    sentences = []
    for curve in curves:
        known = [(x, y) for x, y in curve.points if y is not None]
        (first, begin), (last, end) = known[0], known[-1]
        sentence = f"{curve.name}: {score_text(begin)} in round {first}"
        if last != first:
            sentence += f", {score_text(end)} in round {last}"
        sentences.append(f"{sentence}.")
    for band in bands:
        last, low, high = band.points[-1]
        sentences.append(f"{band.name}: {score_text(low)} to {score_text(high)} in round {last}.")
    return " ".join(sentences)

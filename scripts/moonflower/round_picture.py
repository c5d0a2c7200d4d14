"""docs/images/round.svg: the stops of docs/tour.md, drawn where they happen."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from scripts.moonflower.house import STYLE

_STOP = re.compile(r"^## (\d+)\. (.+)\n\n`([^`]+)`: `([^`]+)`$", re.MULTILINE)
_LANES = ("server_app", "client_app")
_WIDTH, _HEIGHT, _GAP, _LANE_GAP = 330, 62, 22, 80


@dataclass(frozen=True)
class Stop:
    """One stop: its number, the question, and the file and name that answer it."""

    number: int
    question: str
    file: str
    name: str

    @property
    def lane(self) -> int:
        """0 on the server, 1 on a client."""
        return _LANES.index(self.file.split("/")[0])


def stops(tour: str) -> list[Stop]:
    """Return the stops of the page, in its order."""
    return [
        Stop(int(number), question, file, name)
        for number, question, file, name in _STOP.findall(tour)
    ]


def draw(tour: str) -> str:
    """Return the picture of the page, SVG."""
    found = stops(tour)
    height = 40 + len(found) * (_HEIGHT + _GAP)
    width = 2 * _WIDTH + _LANE_GAP + 40
    places = {
        stop: (20 + stop.lane * (_WIDTH + _LANE_GAP), 40 + row * (_HEIGHT + _GAP))
        for row, stop in enumerate(found)
    }
    floors = [
        f'<rect class="floor" x="{10 + lane * (_WIDTH + _LANE_GAP)}" y="8" width="{_WIDTH + 20}" '
        f'height="{height}" rx="6"/><text class="name" x="{20 + lane * (_WIDTH + _LANE_GAP)}" '
        f'y="28">{name}</text>'
        for lane, name in enumerate(("on the server", "on each client"))
    ]
    arrows = [_arrow(places[one], places[other]) for one, other in pairwise(found)]
    boxes = [_box(stop, *places[stop]) for stop in found]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 16}" '
            'role="img">',
            "<title>One round: ten questions and the files that answer them</title>",
            STYLE,
            *floors,
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def _box(stop: Stop, x: int, y: int) -> str:
    lines = textwrap.wrap(f"{stop.number}. {stop.question}", 38)
    text = "".join(
        f'<text class="name" x="{x + 10}" y="{y + 18 + 16 * row}">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )
    return (
        f'<rect class="room" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>{text}'
        f'<text x="{x + 10}" y="{y + _HEIGHT - 10}">{escape(stop.file)}: {escape(stop.name)}</text>'
    )


def _arrow(one: tuple[int, int], other: tuple[int, int]) -> str:
    start, end = (one[0] + _WIDTH // 2, one[1] + _HEIGHT), (other[0] + _WIDTH // 2, other[1])
    middle = (start[1] + end[1]) / 2
    return f'<path class="arrow" d="M{start[0]},{start[1]} V{middle} H{end[0]} V{end[1]}"/>'

"""docs/images/house.svg: rooms, their files, and who imports whom, drawn from the imports."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

Graph = dict[str, set[str]]

STYLE = """\
<style>
  text { font: 12px sans-serif; fill: #222 } .name { font-weight: bold; font-size: 13px }
  .floor { fill: #f6f4ee; stroke: #bbb } .room { fill: #fff; stroke: #888 }
  .arrow { stroke: #777; fill: none; marker-end: url(#tip) } .tip { fill: #777 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } .floor { fill: #22252a; stroke: #555 } .room { fill: #2e3238; stroke: #888 }
    .arrow { stroke: #999 } .tip { fill: #999 }
  }
</style>
<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
  <path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>"""

_LINE, _CHARACTERS, _WIDTH, _GAP, _EDGE = 15, 27, 196, 44, 18


@dataclass(frozen=True)
class Room:
    """A package, or a file that stands beside packages, and where it is drawn (its upper left)."""

    name: str
    lines: tuple[str, ...]
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> float:
        """In pixels."""
        return 28.0 + _LINE * len(self.lines)


def imports(root: Path, packages: Iterable[str]) -> Graph:
    """Return which modules each module below ``packages`` imports, late imports included.

    Only modules below ``packages`` count. A name taken from a package that is a module of it
    counts as that module, and ``from package import name`` as an import of the package itself.
    """
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }
    graph: Graph = {}
    for module, path in files.items():
        graph[module] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                deeper = [f"{node.module}.{alias.name}" for alias in node.names]
                named = [each if each in files else node.module for each in deeper]
            graph[module] |= {name for name in named if name in files and name != module}
    return graph


def rooms_of(graph: Mapping[str, set[str]], package: str) -> Graph:
    """Return the same between the parts of ``package`` one level down."""

    def room(module: str) -> str:
        return ".".join(module.split(".")[:2])

    rooms: Graph = {}
    for module, targets in graph.items():
        if module.startswith(f"{package}."):
            inside = {room(name) for name in targets if name.startswith(f"{package}.")}
            rooms.setdefault(room(module), set()).update(inside - {room(module)})
    return rooms


def levels(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how high each room stands: 0 if it imports no other, else above all it imports.

    Raises
    ------
    ValueError
        Rooms import each other in a circle.
    """
    found: dict[str, int] = {}
    left = dict(graph)
    while left:
        ready = [name for name, targets in left.items() if targets <= found.keys()]
        if not ready:
            raise ValueError(f"a circle of imports runs through {', '.join(sorted(left))}")
        for name in ready:
            found[name] = max((found[target] + 1 for target in left.pop(name)), default=0)
    return found


def without_detours(graph: Mapping[str, set[str]]) -> Graph:
    """Leave out what is reached through another room as well: it would be drawn twice."""

    def below(name: str) -> set[str]:
        return graph[name].union(*(below(target) for target in graph[name]))

    return {
        name: {one for one in targets if not any(one in below(other) for other in targets)}
        for name, targets in graph.items()
    }


def draw(root: Path) -> str:
    """Return the picture, SVG: both apps above what they have in common."""
    graph = imports(root, ("server_app", "client_app", "common"))
    server, width, height = _floor(root, graph, "server_app", 0.0, 0.0, columns=4)
    client, client_width, client_height = _floor(
        root, graph, "client_app", width + _GAP, 0.0, columns=2
    )
    ground = max(height, client_height) + _GAP
    common, common_width, common_height = _floor(root, graph, "common", 0.0, ground, columns=6)
    down = [
        f'<path class="arrow" stroke-width="3" d="M{x:.0f},{y:.0f} V{ground - 4:.0f}"/>'
        for x, y in ((width / 2, height), (width + _GAP + client_width / 2, client_height))
    ]
    full = max(width + _GAP + client_width, common_width), ground + common_height
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 -2 {full[0] + 4:.0f} '
            f'{full[1] + 4:.0f}" role="img">',
            "<title>The rooms of Moonflower and which of them import which</title>",
            STYLE,
            *server,
            *client,
            *common,
            *down,
            "</svg>\n",
        ]
    )


def _floor(
    root: Path, graph: Graph, package: str, x: float, y: float, columns: int
) -> tuple[list[str], float, float]:
    """Return a package as SVG, with its width and height."""
    rooms = rooms_of(graph, package)
    placed, width, height = _placed(root, rooms, x, y, columns)
    box = f'<rect class="floor" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    name = f'<text class="name" x="{x + _EDGE}" y="{y + 22}">{package}</text>'
    arrows = [
        _arrow(placed[above], placed[below])
        for above, targets in without_detours(rooms).items()
        for below in sorted(targets)
    ]
    return [box, name, *arrows, *map(_box, placed.values())], width, height


def _placed(
    root: Path, graph: Graph, x: float, y: float, columns: int
) -> tuple[dict[str, Room], float, float]:
    height_of = levels(graph)
    top = y + 36.0
    placed: dict[str, Room] = {}
    width = 2 * _EDGE + columns * (_WIDTH + _GAP) - _GAP
    for level in range(max(height_of.values()), -1, -1):
        names = sorted(name for name, high in height_of.items() if high == level)
        for start in range(0, len(names), columns):
            row = [Room(name, _contents(root, name)) for name in names[start : start + columns]]
            left = x + (width - len(row) * (_WIDTH + _GAP) + _GAP) / 2
            for column, room in enumerate(row):
                across = left + column * (_WIDTH + _GAP)
                placed[room.name] = Room(room.name, room.lines, across, top)
            top += max(room.height for room in row) + _GAP
    return placed, width, top - _GAP + _EDGE - y


def _contents(root: Path, name: str) -> tuple[str, ...]:
    """Return the names of a package's files, wrapped; nothing for a single file."""
    folder = root.joinpath(*name.split("."))
    inside = sorted(
        path.stem if path.suffix else f"{path.name}/"
        for path in folder.glob("*")
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    )
    return tuple(textwrap.wrap(", ".join(inside), _CHARACTERS)) if folder.is_dir() else ()


def _box(room: Room) -> str:
    lines = [
        f'<rect class="room" x="{room.x}" y="{room.y}" width="{_WIDTH}" height="{room.height}" '
        'rx="4"/>',
        f'<text class="name" x="{room.x + 10}" y="{room.y + 18}">'
        f"{escape(room.name.split('.')[-1])}</text>",
    ]
    for number, line in enumerate(room.lines):
        at = room.y + 35 + _LINE * number
        lines.append(f'<text x="{room.x + 10}" y="{at}">{escape(line)}</text>')
    return "".join(lines)


def _arrow(above: Room, below: Room) -> str:
    start = above.x + _WIDTH / 2, above.y + above.height
    end = below.x + _WIDTH / 2, below.y
    bend = (end[1] - start[1]) / 2
    return (
        f'<path class="arrow" d="M{start[0]:.0f},{start[1]:.0f} C{start[0]:.0f},'
        f"{start[1] + bend:.0f} {end[0]:.0f},{end[1] - bend:.0f} {end[0]:.0f},"
        f'{end[1]:.0f}"/>'
    )

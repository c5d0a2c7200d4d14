"""Learning curves as PNG: the mean over seeds, and the band of all of them."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scripts.moonflower.research.reproduce.cells import Request
from scripts.moonflower.research.reproduce.record import Record
from scripts.moonflower.research.reproduce.scores import curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(request: Request, records: Sequence[Record]) -> bytes:
    """Return a PNG with a panel for each column of the table that has runs.

    Runs that are not finished are drawn as far as they came. The paper's number is a dotted line.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    begun = {record.cell.column.name for record in records if record.lines}
    columns = [each for each in request.table.columns if not begun or each.name in begun]
    figure = Figure(figsize=(5.0 * len(columns), 4.0), layout="constrained")
    FigureCanvasAgg(figure)  # no display is needed
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for panel, column in zip(panels, columns, strict=True):
        mine = [record for record in records if record.cell.column == column]
        _panel(panel, request, mine)
        panel.set_title(column.label, parse_math=False)
        panel.set_xlabel("round")
    units = {score.unit for score in request.table.scores.values()}
    panels[0].set_ylabel("score (%)" if units == {"%"} else "score")
    figure.suptitle(request.table.title, parse_math=False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def _panel(panel: Axes, request: Request, records: Sequence[Record]) -> None:
    from matplotlib.ticker import MaxNLocator

    has_paper = False
    for number, row in enumerate(request.table.rows):
        mine = [record for record in records if record.cell.row == row]
        rounds, low, mean, high = band([_points(each) for each in mine])
        if not rounds:
            continue
        colour = f"C{number}"
        panel.plot(rounds, mean, color=colour, label=row.label)
        panel.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
        paper = row.paper.get(mine[0].cell.column.name)
        if paper:
            has_paper = True
            panel.axhline(paper[0], color=colour, linestyle=":", linewidth=1)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if has_paper:
        panel.plot([], [], color="grey", linestyle=":", linewidth=1, label="paper")
    if panel.lines:
        legend = panel.legend(loc="best", fontsize="small")
        for text in legend.get_texts():
            text.set_parse_math(False)  # a $ in a label is a $


def _points(record: Record) -> list[tuple[int, float]]:
    score = record.cell.score
    return [(number, score.shown(value)) for number, value in curve(record.lines, score)]


def band(
    curves: Sequence[Sequence[tuple[int, float]]],
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return rounds, lowest, mean and highest value, over the runs that have it."""
    values: dict[int, list[float]] = defaultdict(list)
    for points in curves:
        for server_round, value in points:
            values[server_round].append(value)
    rounds = sorted(values)
    return (
        rounds,
        [min(values[each]) for each in rounds],
        [math.fsum(values[each]) / len(values[each]) for each in rounds],
        [max(values[each]) for each in rounds],
    )

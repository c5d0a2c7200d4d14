"""The table as Markdown, next to the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scripts.moonflower.durations import duration
from scripts.moonflower.research.reproduce.cells import Request
from scripts.moonflower.research.reproduce.record import Record
from scripts.moonflower.research.reproduce.scores import curve, describe, mean_std, score_of_run
from scripts.moonflower.research.reproduce.table_file import Column, Row

NOTHING = "-"


def render(
    request: Request, records: Sequence[Record], command: str, machine: Sequence[str]
) -> str:
    """Return the whole file.

    Parameters
    ----------
    request : Request
    records : Sequence[Record]
        All cells of the table; only finished ones count.
    command : str
        What was typed.
    machine : Sequence[str]
        On what it ran, a line each.
    """
    done = [record for record in records if record.finished]
    lines = [
        f"# {request.table.title}",
        "",
        f"{_units(request)}. Paper: {request.table.source}.",
        "",
        *_table(request, done),
        "",
        *_footnotes(request, records),
        "",
        "## Runs",
        "",
        *_runs(done),
        "",
        f"{len(done)} of {len(records)} runs are finished, "
        f"{duration(sum(record.seconds for record in done))} of rounds together.",
        "",
        *(f"* {line}" for line in [f"Command: `{command}`", *machine]),
    ]
    return "\n".join(lines) + "\n"


def _table(request: Request, done: Sequence[Record]) -> Iterator[str]:
    columns = request.table.columns
    yield _line(["", *(f"{c.label}: {who}" for c in columns for who in ("paper", "here"))])
    yield "|" + "---|" * (1 + 2 * len(columns))
    for row in request.table.rows:
        cells = [
            text for column in columns for text in (_paper(row, column), _here(row, column, done))
        ]
        yield _line([row.label, *cells])


def _units(request: Request) -> str:
    scores = request.table.scores
    plain = [name for name, score in scores.items() if not score.unit]
    if not plain:
        return "Scores in percent"
    return f"Scores in percent, but {', '.join(plain)}" if len(plain) < len(scores) else "Scores"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _paper(row: Row, column: Column) -> str:
    numbers = row.paper.get(column.name)
    return " ± ".join(f"{number:.2f}" for number in numbers) if numbers else NOTHING


def _here(row: Row, column: Column, done: Sequence[Record]) -> str:
    mine = [each for each in done if (each.cell.row, each.cell.column) == (row, column)]
    if not mine:
        return NOTHING
    result = mean_std([record.lines for record in mine], mine[0].cell.score)
    if result is None:
        return NOTHING
    return f"{result} ({result.runs} run{'s' if result.runs > 1 else ''})"


def _footnotes(request: Request, records: Sequence[Record]) -> Iterator[str]:
    rounds = sorted({record.cell.rounds for record in records})
    yield (
        f"* Scale `{request.scale}`, {' or '.join(map(str, rounds))} rounds, seeds "
        f"{', '.join(map(str, request.seeds))}. `-`: not run to its end, or not in the paper."
    )
    for name, score in request.table.scores.items():
        labels = [row.label for row in request.table.rows if row.score == name]
        yield f"* {', '.join(labels)}: {describe(score)}."
    yield from (f"* {note}" for note in request.table.notes)


def _runs(done: Sequence[Record]) -> Iterator[str]:
    yield _line(["run", "counts", "last round", "best round", "rounds", "time"])
    yield "|" + "---|" * 6
    for record in done:
        score, points = record.cell.score, curve(record.lines, record.cell.score)
        counts = score_of_run(record.lines, score)
        pick = max if score.better == "more" else min
        best = pick(points, key=lambda point: point[1], default=None)
        yield _line(
            [
                record.cell.experiment,
                NOTHING if counts is None else f"{score.shown(counts):.2f}",
                f"{score.shown(points[-1][1]):.2f}" if points else NOTHING,
                f"{score.shown(best[1]):.2f} ({best[0]})" if best else NOTHING,
                str(record.rounds),
                duration(record.seconds),
            ]
        )

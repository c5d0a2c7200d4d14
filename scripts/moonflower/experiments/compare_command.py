"""``moonflower compare``: what experiments reached, as a table, a picture or JSON."""

from __future__ import annotations

import dataclasses
import json as jsons
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.errors import MoonflowerError

if TYPE_CHECKING:
    from scripts.moonflower.experiments.side_by_side import Group, Spread

BAD_USAGE = 2


def compare(
    experiments: Annotated[
        list[str],
        typer.Argument(metavar="EXPERIMENT...", help="Names in the output folder, or paths."),
    ],
    to: Annotated[
        float | None,
        typer.Option(help="A score: also show the rounds and megabytes it took to reach it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the table to this file instead of printing it.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the curves into this file: .svg, .png or .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where experiments are. Default: MOONFLOWER_OUTPUT_DIR, else output in the "
            "repository."
        ),
    ] = None,
) -> None:
    """Compare experiments: final, best and worst score, cost, and differences paired by seed.

    Experiments with equal settings but for the seed are one row, mean ± standard deviation.
    """
    from common.files import write_bytes
    from scripts.moonflower.experiments.experiment import read_experiment
    from scripts.moonflower.experiments.finding import find_experiment, output_folder
    from scripts.moonflower.experiments.side_by_side import compared

    try:
        folders = [
            find_experiment(name, output_folder(output_dir)) for name in dict.fromkeys(experiments)
        ]
        groups = compared([read_experiment(folder) for folder in folders], to)
        if picture is not None:
            draw(groups, picture)
        text = as_json(groups, to) if json else as_markdown(groups, to)
        if out is not None:
            write_bytes(out.absolute(), f"{text}\n".encode())
        else:
            typer.echo(text)
    except (MoonflowerError, OSError) as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_USAGE) from None


def as_markdown(groups: Sequence[Group], to: float | None) -> str:
    """Return the table, and a second one of paired differences where there are several rows."""
    score = next(iter(groups[0].by_seed.values())).headline.name
    columns = [("final", f"final {score}", 3), ("best", "best", 3), ("worst", "worst client", 3)]
    if to is not None:
        columns += [("rounds-to", f"rounds to {to:g}", 0), ("megabytes-to", f"MB to {to:g}", 1)]
    columns += [("megabytes", "MB", 1), ("seconds", "seconds", 0)]
    head = ["", "seeds", *(title for _, title, _ in columns)]
    rows = [
        [
            each.label,
            str(len(each.by_seed)),
            *(_shown(each, measure, digits) for measure, _, digits in columns),
        ]
        for each in groups
    ]
    tables = [_table(head, rows)]
    if len(groups) > 1:
        tables.append(_differences(groups, score))
    return "\n\n".join(tables)


def _differences(groups: Sequence[Group], score: str) -> str:
    from scripts.moonflower.experiments.side_by_side import paired

    first = groups[0]
    rows = []
    for each in groups[1:]:
        found = paired(first, each)
        shown = _plus_minus(found, 3, sign="+") if found else "no seed in common"
        rows.append([each.label, shown, str(found.count if found else 0)])
    return _table([f"final {score} minus that of {first.label}", "difference", "pairs"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines)


def _shown(group: Group, measure: str, digits: int) -> str:
    found = group.spread(measure)
    if found is None:
        return "-"
    short = found.count < len(group.by_seed)
    return _plus_minus(found, digits) + (
        f" ({found.count} of {len(group.by_seed)})" if short else ""
    )


def _plus_minus(found: Spread, digits: int, sign: str = "") -> str:
    std = "" if found.std is None else f" ± {found.std:.{digits}f}"
    return f"{found.mean:{sign}.{digits}f}{std}"


def as_json(groups: Sequence[Group], to: float | None) -> str:
    """Return the JSON form; docs/tracking.md describes it."""
    from scripts.moonflower.experiments.side_by_side import MEASURES, paired

    def numbers(found: Spread | None) -> dict[str, Any] | None:
        return None if found is None else dataclasses.asdict(found)

    listed = [
        {
            "label": each.label,
            "experiments": {seed: run.name for seed, run in each.by_seed.items()},
            "by-seed": each.measures,
            "over-seeds": {measure: numbers(each.spread(measure)) for measure in MEASURES},
            "minus-first": numbers(paired(groups[0], each)),
        }
        for each in groups
    ]
    score = next(iter(groups[0].by_seed.values())).headline
    facts = {"score": score.name, "more-is-better": score.more_is_better, "to": to}
    return jsons.dumps({**facts, "groups": listed}, indent=2, ensure_ascii=False)


def draw(groups: Sequence[Group], path: Path) -> None:
    """Draw the score by round: the mean over seeds, and from the lowest seed to the highest.

    Raises
    ------
    ComparisonError
        The file's ending is none of a picture.
    """
    from matplotlib.figure import Figure

    from scripts.moonflower.experiments.side_by_side import ComparisonError

    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ComparisonError(f"--picture {path}: allowed are files that end in .svg, .png or .pdf")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for group in groups:
        by_round: dict[int, list[float]] = {}
        for each in group.by_seed.values():
            for number, score in each.scores():
                if score is not None:
                    by_round.setdefault(number, []).append(score)
        rounds = sorted(n for n, found in by_round.items() if len(found) == len(group.by_seed))
        found = [by_round[n] for n in rounds]
        axes.plot(rounds, [sum(each) / len(each) for each in found], label=group.label)
        axes.fill_between(rounds, list(map(min, found)), list(map(max, found)), alpha=0.2)
    axes.set_xlabel("round")
    axes.set_ylabel(next(iter(groups[0].by_seed.values())).headline.name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)

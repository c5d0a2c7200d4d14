"""How good a saved model is on one site's data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from common.data import ExampleSet
from common.tasks import Scores, add
from scripts.moonflower.models.opened import OpenedModel
from server_app.report.round_report import finite

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class SiteScores:
    """What a model reaches.

    Attributes
    ----------
    model : Path
    split : str
    examples : int
    scores : Scores
    """

    model: Path
    split: str
    examples: int
    scores: Scores

    def as_json(self) -> Mapping[str, object]:
        """Return all of it in JSON; a score that is not defined is null, and ``undefined`` why."""
        return {
            "model": str(self.model),
            "split": self.split,
            "examples": self.examples,
            "scores": finite(self.scores.values),
            "undefined": dict(self.scores.undefined),
        }


def measure(opened: OpenedModel, split: str, sets: Sequence[ExampleSet]) -> SiteScores:
    """Return the task's scores over all ``sets`` together."""
    # As in the run: sums over more threads round differently.
    torch.set_num_threads(opened.settings.train.cpu_threads)
    device = sets[0].y.device
    model = opened.saved.model.to(device)
    sums = add(opened.task.measure(model, each) for each in sets)
    return SiteScores(opened.saved.folder, split, sum(map(len, sets)), opened.task.score(sums))


def tables(found: SiteScores, classes: Sequence[str]) -> Iterator[Table]:
    """Yield the tables to print: single numbers, then what there is by class.

    What is no number for each class, such as a matrix, is for ``--json``.
    """
    from rich.table import Table
    from rich.text import Text

    undefined = found.scores.undefined
    single = Table("Score", "Value")
    by_class: dict[str, list[object]] = {}
    for name, value in found.scores.values.items():
        if isinstance(value, list):
            if len(value) == len(classes) and not any(isinstance(n, list | dict) for n in value):
                by_class[name] = value
        elif name != "examples" and not isinstance(value, dict):
            single.add_row(name, _shown(value, undefined.get(name)))
    yield single
    if by_class:
        table = Table("Class", *by_class)
        for row in zip(classes, *by_class.values(), strict=True):
            table.add_row(Text(str(row[0])), *map(_shown, row[1:]))
        yield table


def _shown(value: object, reason: str | None = None) -> str:
    if value is None:
        return f"- ({reason})" if reason else "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)

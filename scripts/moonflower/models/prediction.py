"""What a saved model says about files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch

from common.data import DataError
from common.tasks.base import evaluating
from common.text import escaped
from scripts.moonflower.models.opened import OpenedModel
from scripts.moonflower.models.unlabelled import Example, batches, read, stacked

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Prediction:
    """The answer for one example.

    Attributes
    ----------
    file : Path
    row : int or None
        In the file, from 0; None where a file is one example.
    answer : list of float
        The probability of each class, or one number.
    """

    file: Path
    row: int | None
    answer: list[float]


@dataclass
class Predictor:
    """Asks a model about files, one after the other.

    Attributes
    ----------
    opened : OpenedModel
    device : torch.device
    batch_size : int
    problems : dict
        Why a file has no answers, or not all, by its name.
    examples : int
        That were answered.
    """

    opened: OpenedModel
    device: torch.device
    batch_size: int
    problems: dict[str, str] = field(default_factory=dict)
    examples: int = 0

    def ask(self, files: Iterable[Path], done: Callable[[Path], None]) -> Iterator[Prediction]:
        """Yield the answers; ``done`` is told of every file that was read."""
        model = self.opened.saved.model.to(self.device)
        with evaluating(model):
            for batch in batches(self._read(files, done), self.batch_size):
                stored = torch.from_numpy(stacked(batch)).to(self.device)
                output = model(self.opened.spec.kind.prepare(stored)).float()
                answers = self.opened.task.answers(output).cpu()
                for example, answer in zip(batch, answers, strict=True):
                    self.examples += 1
                    yield Prediction(example.file, example.row, answer.reshape(-1).tolist())

    def _read(self, files: Iterable[Path], done: Callable[[Path], None]) -> Iterator[Example]:
        for path in files:
            try:
                yield from read(path, self.opened)
            except DataError as error:
                self.problems[escaped(str(path))] = escaped(str(error))
            done(path)


def header(opened: OpenedModel) -> list[str]:
    """Return the columns of a line of CSV."""
    if opened.labels:
        return ["file", "row", *(f"p({label})" for label in opened.labels)]
    if not opened.classes:
        return ["file", "row", "number"]
    return ["file", "row", "class", "probability", *(f"p({name})" for name in opened.classes)]


def line(prediction: Prediction, opened: OpenedModel) -> list[object]:
    """Return a prediction as :func:`header` names it."""
    place = [escaped(str(prediction.file)), "" if prediction.row is None else prediction.row]
    if not opened.classes:
        return [*place, *prediction.answer]
    return [*place, *_likeliest(prediction, opened), *prediction.answer]


def as_json(prediction: Prediction, opened: OpenedModel) -> Mapping[str, Any]:
    """Return a prediction in JSON."""
    place = {"file": escaped(str(prediction.file)), "row": prediction.row}
    if opened.labels:
        by_label = dict(zip(opened.labels, prediction.answer, strict=True))
        return {**place, "probabilities": by_label}
    if not opened.classes:
        return {**place, "number": prediction.answer[0]}
    name, probability = _likeliest(prediction, opened)
    by_class = dict(zip(opened.classes, prediction.answer, strict=True))
    return {**place, "class": name, "probability": probability, "probabilities": by_class}


def write_csv(file: TextIO, predictions: Iterable[Prediction], opened: OpenedModel) -> None:
    """Write predictions as they come."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header(opened))
    writer.writerows(line(each, opened) for each in predictions)


def as_table(predictions: Iterable[Prediction], opened: OpenedModel) -> Table:
    """Return the table to print: of the probabilities only that of the likeliest class."""
    from rich.table import Table
    from rich.text import Text

    columns = header(opened) if opened.labels else header(opened)[:4]
    table = Table(*columns)
    for each in predictions:
        cells = line(each, opened)[: len(columns)]
        table.add_row(*(Text(f"{c:.4g}" if isinstance(c, float) else str(c)) for c in cells))
    return table


def _likeliest(prediction: Prediction, opened: OpenedModel) -> tuple[str, float]:
    probability = max(prediction.answer)
    return opened.classes[prediction.answer.index(probability)], probability

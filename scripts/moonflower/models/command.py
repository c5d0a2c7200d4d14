"""``moonflower export-model``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.moonflower.options import RunConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scripts.moonflower.models.opened import OpenedModel

PROBLEMS, BAD_INPUT = 1, 2
CHECKED = 64
"""Examples that an exported model is compared on."""

Model = Annotated[
    Path,
    typer.Argument(help="A saved model's folder, as EXPERIMENT/best; or EXPERIMENT, for its best."),
]
DataDir = Annotated[
    Path | None, typer.Option(help="Where the data are. Default: ~/.moonflower/data.")
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1. Default: MOONFLOWER_DEVICE, else a GPU if any.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


class Format(StrEnum):
    """What a model can be exported to: formats that hold no pickle."""

    ONNX = "onnx"


class SplitName(StrEnum):
    """The examples of a site that a model is measured on."""

    TEST = "test"
    VALIDATION = "validation"
    ALL = "all"


@contextmanager
def _explained() -> Iterator[None]:
    """Say what is wrong with what was given, and end."""
    from common.errors import MoonflowerError

    try:
        yield
    except (MoonflowerError, OSError) as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def export_model(
    model: Model,
    to: Annotated[Format, typer.Option(help="The format.")] = Format.ONNX,
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: model.onnx in MODEL.")
    ] = None,
    data_dir: DataDir = None,
    input_dtype: Annotated[
        str | None,
        typer.Option(help="Of the examples it takes: for images uint8 (default) or float32."),
    ] = None,
) -> None:
    """Write a saved model as one file that is of use without Moonflower and torch.

    What is done to stored examples (normalisation) is inside. The file is compared with the model,
    on real examples where there are any here, and written only if the two agree.
    """
    with _explained():
        from common.files import write_bytes
        from scripts.moonflower.models import onnx_file
        from scripts.moonflower.models.opened import open_model

        opened = open_model(model)
        dtype = onnx_file.chosen_dtype(opened, input_dtype)
        examples, which = _to_compare(opened, data_dir, dtype)
        exported = onnx_file.export(opened, examples)
        path = out or opened.saved.folder / f"model.{to.value}"
        write_bytes(path, exported.blob)
    outputs = ", ".join(onnx_file.output_names(opened))
    shape = ", ".join(map(str, opened.spec.kind.stored_shape))
    typer.echo(f"{path}: opset {onnx_file.OPSET}, {len(exported.blob) / 1e6:.1f} MB")
    typer.echo(f"takes {onnx_file.INPUT}, {dtype} [any, {shape}]; gives {outputs}")
    typer.echo(
        f"compared with the model on {len(examples)} {which}: largest difference "
        f"{exported.difference:.1e}, allowed {onnx_file.TOLERANCE:g}"
    )


def _to_compare(opened: OpenedModel, data_dir: Path | None, dtype: str) -> tuple[NDArray[Any], str]:
    """Return stored examples and what they are: real ones where there are any of this type."""
    from common.data import DataError
    from common.seeding import numpy_generator
    from scripts.moonflower.models.local_examples import stored_split

    try:
        found = stored_split(opened, data_dir, "test") or stored_split(opened, data_dir, "train")
    except DataError:
        if data_dir is not None:
            raise
        found = None
    if found is not None and str(found.x.dtype) == dtype and len(found.x) > 1:
        return found.x[:CHECKED], f"examples of {opened.spec.name}"
    generator = numpy_generator(0, "export")
    return opened.spec.kind.drawn(CHECKED, dtype, generator), "random examples (no data of it here)"


def predict(
    model: Model,
    files: Annotated[list[Path], typer.Argument(help="Images, npz archives, folders of them.")],
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, line by line.")] = False,
    json_: Json = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples at once.")] = 256,
    device: Device = "",
) -> None:
    """Say what a saved model makes of files: classes and probabilities, or numbers.

    A file that can't be read is named and the others go on; the exit code is then 1.
    """
    with _explained():
        from common.data import DataError
        from common.node import choose_device
        from scripts.moonflower.models.opened import open_model
        from scripts.moonflower.models.prediction import Predictor
        from scripts.moonflower.models.unlabelled import files_in

        opened = open_model(model)
        predictor = Predictor(opened, choose_device(device), batch_size)
        chosen = list(files_in(files, opened))
        if not chosen:
            raise DataError(f"no file for this model in {', '.join(map(str, files))}")
        with _progress(len(chosen)) as done:
            _print(predictor, chosen, done, csv=csv, as_json=json_)
    for problem in predictor.problems.values():
        typer.echo(f"moonflower: {problem}", err=True)
    counted = f"examples: {predictor.examples}, files: {len(chosen)}"
    typer.echo(f"moonflower: {counted}, with problems: {len(predictor.problems)}", err=True)
    raise typer.Exit(PROBLEMS if predictor.problems else 0)


def _print(
    predictor: Any, files: list[Path], done: Callable[[Path], None], *, csv: bool, as_json: bool
) -> None:
    from rich.console import Console

    from scripts.moonflower.models import prediction

    answers, opened = predictor.ask(files, done), predictor.opened
    if csv:
        prediction.write_csv(sys.stdout, answers, opened)
    elif as_json:
        listed = [prediction.as_json(each, opened) for each in answers]
        found = {"predictions": listed, "problems": predictor.problems}
        typer.echo(json.dumps({"model": str(opened.saved.folder), **found}, ensure_ascii=False))
    else:
        width = None if sys.stdout.isatty() else 160
        Console(width=width).print(prediction.as_table(answers, opened))


@contextmanager
def _progress(files: int) -> Iterator[Callable[[Path], None]]:
    """Show on a terminal's stderr how many files are read."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("files", total=files)
        yield lambda _: bar.advance(task)


def evaluate(
    model: Model,
    data_dir: DataDir = None,
    split: Annotated[
        SplitName | None,
        typer.Option(
            help="test: the test set here. validation: what a site keeps from training. all: "
            "training and test examples, for a site that had no part in the training. Default: "
            "test, else validation."
        ),
    ] = None,
    run_config: RunConfig = None,
    device: Device = "",
    json_: Json = False,
) -> None:
    """Measure a saved model on the data of this site, without training.

    The data are read as the run's settings say; -c changes them, as -c data.source=npz.
    """
    with _explained():
        from rich.console import Console

        from common.node import choose_device
        from scripts.moonflower.models.local_examples import find_examples
        from scripts.moonflower.models.opened import open_model
        from scripts.moonflower.models.site_scores import measure, tables
        from scripts.moonflower.run_config import read_overrides

        changes = {k: v for text in run_config or [] for k, v in read_overrides(text).items()}
        opened = open_model(model, changes)
        chosen = choose_device(device)
        name, sets = find_examples(opened, data_dir, split and split.value, chosen)
        found = measure(opened, name, sets)
    if json_:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
        return
    typer.echo(f"{found.model} on {found.examples} examples, split {found.split!r}")
    for table in tables(found, opened.classes):
        Console(width=None if sys.stdout.isatty() else 160).print(table)

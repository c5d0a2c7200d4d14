"""A saved model as one ONNX file: from stored examples to answers, with nothing else needed."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from common.config import SettingsError
from common.errors import MoonflowerError
from common.models import count_parameters
from common.tasks.base import evaluating
from scripts.moonflower.models.opened import OpenedModel

OPSET = 20
"""Of ONNX; onnxruntime knows it since 1.17."""
TOLERANCE = 1e-4
"""Largest difference to what torch computes, relative where a value is beyond 1."""
INPUT = "x"
LARGEST = 2 * 10**9
"""Bytes of a protobuf message, which an ONNX file is."""


class ExportError(MoonflowerError):
    """A model can't be exported, or not so that it gives the same; the message says why."""


class Served(nn.Module):
    """A saved model as it leaves: stored examples in, answers, raw outputs and z out."""

    def __init__(self, opened: OpenedModel) -> None:
        super().__init__()
        self.model = opened.saved.model
        self._kind = opened.spec.kind
        self._task = opened.task

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return answers ``[batch, ...]``, output ``[batch, outputs]``, z ``[batch, latent]``."""
        z = self.model.encoder(self._kind.prepare(x)).float()
        output = self.model.predictor(z).float()
        return self._task.answers(output), output, z


@dataclass(frozen=True)
class Exported:
    """An ONNX file that was compared with its model.

    Attributes
    ----------
    blob : bytes
    difference : float
        The largest that was found (:func:`largest_difference`), at most ``TOLERANCE``.
    """

    blob: bytes
    difference: float


def output_names(opened: OpenedModel) -> tuple[str, str, str]:
    """Return the names of what :class:`Served` gives, in its order."""
    return opened.task.answer, "output", "z"


def chosen_dtype(opened: OpenedModel, wanted: str | None) -> str:
    """Return the type of the examples that the exported model takes.

    Raises
    ------
    SettingsError
        The model's kind of data is not stored so.
    """
    kind = opened.spec.kind
    if wanted is not None and wanted not in kind.dtypes:
        raise SettingsError(
            f"--input-dtype {wanted!r}: {kind.stored} are stored as {' or '.join(kind.dtypes)}"
        )
    return wanted or kind.dtypes[0]


def export(opened: OpenedModel, examples: NDArray[Any]) -> Exported:
    """Return the ONNX file of a model, after comparing the two.

    Parameters
    ----------
    opened : OpenedModel
    examples : ndarray
        Stored examples, at least two; the file takes their dtype, any number of them at once.

    Raises
    ------
    ExportError
        torch can't express the model in ONNX, it is too large for one file, or the two differ by
        more than ``TOLERANCE``.
    SettingsError
        What exporting needs is not installed.
    """
    _check_installed()
    served = Served(opened).eval()
    size = 4 * count_parameters(served)
    if size > LARGEST:
        raise ExportError(
            f"the model has {size / 1e9:.1f} GB of weights, and an ONNX file holds "
            f"{LARGEST / 1e9:.0f}: use model.safetensors"
        )
    with evaluating(opened.saved.model):
        blob = _converted(served, torch.from_numpy(examples[:2].copy()), opened)
        difference = _compare(blob, served, examples)
    if not difference <= TOLERANCE:
        raise ExportError(
            f"the exported model differs from the saved one by {difference:.2g} on "
            f"{len(examples)} examples; at most {TOLERANCE:g} is allowed. Nothing was written. "
            "Please report this, with model.json"
        )
    return Exported(blob, difference)


def largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the maximum of ``|found - expected| / max(1, |expected|)``; NaN where one is."""
    if found.shape != expected.shape:
        return float("inf")
    difference = np.abs(found - expected) / np.maximum(1, np.abs(expected))
    return float(difference.max(initial=0))


def _check_installed() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            f"exporting to ONNX needs packages that are not installed ({error}): "
            "pip install 'moonflower[onnx]'"
        ) from None


def _converted(served: Served, example: Tensor, opened: OpenedModel) -> bytes:
    from onnx import helper
    from torch.onnx import OnnxExporterError

    try:
        with _quiet():
            program = torch.onnx.export(
                served,
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=list(output_names(opened)),
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                verbose=False,
            )
    except (OnnxExporterError, torch._dynamo.exc.UserError) as error:
        raise ExportError(
            f"model.name = {opened.settings.model.name!r} can't be expressed in ONNX: {error}"
        ) from error
    if program is None:
        raise ExportError("torch gave no ONNX program")
    file = program.model_proto
    batch = file.graph.input[0].type.tensor_type.shape.dim[0]
    if not batch.dim_param:
        raise ExportError(
            f"model.name = {opened.settings.model.name!r} was exported for batches of "
            f"{batch.dim_value} only: something in it takes the number of examples as a plain int"
        )
    helper.set_model_props(file, facts(opened))
    blob: bytes = file.SerializeToString()
    return blob


def facts(opened: OpenedModel) -> dict[str, str]:
    """Return what the file says of itself: nothing of single sites.

    Lists and tables are JSON.
    """
    about = opened.saved.facts
    known = {
        "experiment": about.get("experiment"),
        "round": about.get("round"),
        "algorithm": about.get("algorithm"),
        "task": opened.settings.task.name,
        "data": opened.spec.facts(),
        "class-names": list(opened.classes),
        "weights-sha256": opened.saved.sha256,
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in known.items()
        if value is not None
    }


def _compare(blob: bytes, served: Served, examples: NDArray[Any]) -> float:
    """Return the largest difference, of all examples at once and of the first alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # warnings of the optimiser help nobody here
    session = onnxruntime.InferenceSession(blob, options, providers=["CPUExecutionProvider"])
    differences = []
    for some in (examples, examples[:1]):
        expected = served(torch.from_numpy(some.copy()))
        found = session.run(None, {INPUT: some})
        differences += [
            largest_difference(np.asarray(there), here.numpy())
            for there, here in zip(found, expected, strict=True)
        ]
    # Not max(): of a NaN and a number it may be either.
    return float(np.max(differences))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes to developers away from a person's terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

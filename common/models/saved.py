"""Trained models on disk: a folder with ``model.safetensors`` and ``model.json``.

The JSON says how to rebuild the model, so that nothing but the folder is needed.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from common.config import ModelSettings, SettingsError
from common.data import DataSpec
from common.errors import MoonflowerError
from common.files import (
    DamagedFileError,
    json_bytes,
    previous_folder,
    read_json,
    sha256,
    write_folder,
)
from common.logs import NAME
from common.models.registry import build_model
from common.models.split import SplitModel, private_names, unshared_names
from common.storage import pack_tensors, unpack_tensors

logger = logging.getLogger(NAME)

FORMAT = 2
"""In format 1 the weights carried a second SHA-256, which nobody looks at any more."""
WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
CARD = "README.md"

_BEFORE = {"predictor-layers": 1, "folder": "", "folder-sha256": "", "freeze-layers": 0}
"""Settings that models saved by an earlier version don't name, and what they were then."""


class SavedModelError(MoonflowerError, ValueError):
    """A saved model is missing, damaged, too new or of no use as it is; the message says which."""


def save_model(
    folder: Path,
    model: SplitModel,
    settings: ModelSettings,
    spec: DataSpec,
    facts: Mapping[str, object],
    card: Callable[[str], str] | None = None,
) -> None:
    """Write ``model`` to ``folder``, whole or not at all, replacing a model that is there.

    As :func:`common.files.write_folder` does. A model whose replacement was cut short is found by
    :func:`load_model` too.

    Parameters
    ----------
    folder : Path
        Such as ``best``. Only models belong into it: anything else in it is deleted.
    model : SplitModel
        On any device; weights and buffers are saved, without what is not shared
        (``model.sharing``): here it has never been trained.
    settings : ModelSettings
    spec : DataSpec
        What the model was built from.
    facts : Mapping[str, object]
        What else to know of it, such as round and accuracy; anything that JSON can hold.
    card : callable, optional
        Makes the page for people, ``README.md``, of the SHA-256 of the weights.

    Raises
    ------
    OSError
        The disk is full, read-only or failing. A model that was there still can be loaded.
    """
    weights = pack_tensors(_trained_here(model, settings), {})
    digest = sha256(weights)
    files = {
        WEIGHTS: weights,
        DESCRIPTION: json_bytes(_description(settings, spec, facts, digest)),
    }
    write_folder(folder, files | ({CARD: card(digest).encode()} if card else {}))


@dataclass(frozen=True)
class SavedModel:
    """A model that was saved, and what is known of it.

    Attributes
    ----------
    folder : Path
    model : SplitModel
        In eval mode, on the CPU.
    spec : DataSpec
        What its examples are and what it predicts.
    facts : Mapping[str, object]
        As :func:`save_model` got them.
    sha256 : str
        Of the file of its weights.
    """

    folder: Path
    model: SplitModel
    spec: DataSpec
    facts: Mapping[str, Any]
    sha256: str


def load_model(path: Path | str, *, allow_private_parts: bool = False) -> SplitModel:
    """Rebuild a saved model, in eval mode on the CPU, as :func:`read_saved` does."""
    return read_saved(path, allow_private_parts=allow_private_parts).model


def read_saved(path: Path | str, *, allow_private_parts: bool = False) -> SavedModel:
    """Rebuild a saved model and read what was saved with it.

    It gives the logits of the model that was saved, bit for bit; where only the predictor was
    shared, its predictor does.

    Parameters
    ----------
    path : Path or str
        The folder, such as ``output/<experiment>/best``, or one of the two files in it.
    allow_private_parts : bool
        Load a global model of which a part stayed on the clients, its encoder
        (``model.sharing = 'predictor'``) or its BatchNorm statistics
        (``model.batch-norm-buffers = 'local'``), to put a client's into it. That part is untrained.

    Raises
    ------
    SavedModelError
        Missing or damaged; of a newer format; or without a trained encoder or BatchNorm statistics.
    """
    folder = _find(path)
    description = _read_description(folder)
    settings, spec = _settings_and_spec(folder, description)
    blob = _read_weights(folder, description)
    try:
        tensors, _ = unpack_tensors(blob)
        model = build_model(settings, spec, seed=0)
        private = private_names(model, settings)
        initial = {name: value for name, value in model.state_dict().items() if name in private}
        model.load_state_dict({**initial, **tensors})
    except (DamagedFileError, SettingsError, RuntimeError) as error:
        raise SavedModelError(
            f"{folder / WEIGHTS} does not fit the model that {DESCRIPTION} describes: {error}"
        ) from error
    if private and not allow_private_parts:
        raise SavedModelError(_incomplete(folder, settings))
    return SavedModel(folder, model.eval(), spec, description["facts"], sha256(blob))


def _trained_here(model: SplitModel, settings: ModelSettings) -> dict[str, Tensor]:
    left_out = unshared_names(model, settings)
    return {name: value for name, value in model.state_dict().items() if name not in left_out}


def _incomplete(folder: Path, settings: ModelSettings) -> str:
    if settings.sharing == "nothing":
        return (
            f"{folder} holds no weights: every client trained alone (model.sharing = 'nothing'). "
            "The clients' models are in state/<experiment>/<client>/ on their machines"
        )
    if settings.sharing == "predictor":
        return (
            f"{folder} holds a predictor only: it was trained with model.sharing = 'predictor', "
            "and the encoders never left the clients. Train with 'all', or load it with "
            "allow_private_parts=True and put a client's encoder into it, from "
            "state/<experiment>/<client>/ on that client's machine"
        )
    return (
        f"the model in {folder} was trained with model.batch-norm-buffers = 'local': its "
        "BatchNorm statistics never left the clients, so those saved here are untrained and "
        "its answers would be noise. Train with 'averaged' (or model.norm = 'group'), or load "
        "it with allow_private_parts=True and put a client's statistics into it"
    )


def load_facts(path: Path | str) -> dict[str, Any]:
    """Return the ``facts`` that were saved with a model.

    Raises
    ------
    SavedModelError
        Missing, damaged or of a newer format.
    """
    facts: dict[str, Any] = _read_description(_find(path))["facts"]
    return facts


def _find(path: Path | str) -> Path:
    folder = Path(path)
    if folder.name in (WEIGHTS, DESCRIPTION):
        folder = folder.parent
    # One that is there may be ".", which has no name.
    if not folder.exists() and (previous := previous_folder(folder)).exists():
        logger.warning("%s is missing: its replacement was cut short; %s is used", folder, previous)
        return previous
    return folder


def _description(
    settings: ModelSettings, spec: DataSpec, facts: Mapping[str, object], digest: str
) -> dict[str, object]:
    return {
        "format": FORMAT,
        "moonflower": _version(),
        "model": settings.model_dump(by_alias=True),
        "data": spec.facts(),
        "weights": {"file": WEIGHTS, "sha256": digest},
        "facts": dict(facts),
    }


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        description = read_json(folder / DESCRIPTION)
    except DamagedFileError as error:
        raise SavedModelError(str(error)) from error
    except OSError as error:
        raise SavedModelError(
            f"there is no saved model in {folder} ({error}): give a folder with {WEIGHTS} and "
            f"{DESCRIPTION}, such as output/<experiment>/final"
        ) from error
    number = description.get("format") if isinstance(description, dict) else None
    if not isinstance(number, int):
        raise SavedModelError(f"{folder / DESCRIPTION} is damaged: it names no format")
    if number > FORMAT:
        raise SavedModelError(
            f"{folder} has format {number}, written by Moonflower {description.get('moonflower')}; "
            f"this is {_version()} and reads formats up to {FORMAT}: install a newer one"
        )
    for part in ("model", "data", "weights", "facts"):
        if not isinstance(description.get(part), dict):
            raise SavedModelError(f"{folder / DESCRIPTION} is damaged: it has no {part!r}")
    return dict(description)


def _settings_and_spec(
    folder: Path, description: Mapping[str, Any]
) -> tuple[ModelSettings, DataSpec]:
    try:
        settings = ModelSettings.model_validate({**_BEFORE, **description["model"]})
        spec = DataSpec.of(description["data"])
    except ValidationError as error:
        problems = (f"{p['loc'][-1]} {p['input']!r}: {p['msg']}" for p in error.errors())
        raise SavedModelError(
            f"{folder / DESCRIPTION} does not describe a model that this version of Moonflower "
            f"({_version()}) knows: {'; '.join(problems)}"
        ) from error
    except (KeyError, TypeError) as error:
        raise SavedModelError(
            f"{folder / DESCRIPTION} is damaged: it does not describe a model ({error})"
        ) from error
    return settings, spec


def _read_weights(folder: Path, description: Mapping[str, Any]) -> bytes:
    try:
        blob = (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise SavedModelError(f"the weights in {folder} can't be read: {error}") from error
    expected = description["weights"].get("sha256")
    if sha256(blob) != expected:
        raise SavedModelError(
            f"{folder / WEIGHTS} is damaged or not the one that {DESCRIPTION} was written for: "
            f"its SHA-256 is {sha256(blob)}, expected {expected}. Use a copy of both files"
        )
    return blob


def _version() -> str:
    """Return Moonflower's version; in Flower's bundle it is not an installed package."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("moonflower")
    with suppress(OSError, KeyError, tomllib.TOMLDecodeError):
        pyproject = Path(__file__).parents[2] / "pyproject.toml"
        return str(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["version"])
    return "unknown"

"""A saved model as a person names it, with the task that it was trained for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.config import Settings, SettingsError, flat, parse_settings
from common.data import DataSpec, data_spec
from common.data.targets import ClassLabels, LabelSets
from common.files import DamagedFileError, previous_folder, read_json
from common.models import SavedModel, SavedModelError, read_saved
from common.tasks import Task, build_task
from scripts.moonflower.repository import default_run_config
from server_app.experiment.layout import BEST, FINAL, SETTINGS_FILE


@dataclass(frozen=True)
class OpenedModel:
    """A saved model that can be asked.

    Attributes
    ----------
    saved : SavedModel
    settings : Settings
        Of the run that trained it, with what a command has changed.
    task : Task
    """

    saved: SavedModel
    settings: Settings
    task: Task

    @property
    def spec(self) -> DataSpec:
        """What its examples are and what it predicts."""
        return self.saved.spec

    @property
    def classes(self) -> tuple[str, ...]:
        """A name for each class, its number where none was given; empty where there are none."""
        if not isinstance(self.spec.targets, ClassLabels):
            return ()
        return self.settings.data.classes or tuple(map(str, range(self.spec.targets.count)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The number of each label where an example may have any of them; else empty."""
        sets = isinstance(self.spec.targets, LabelSets)
        return tuple(map(str, range(self.spec.targets.outputs))) if sets else ()


def open_model(path: Path, changes: Mapping[str, Any] | None = None) -> OpenedModel:
    """Read a saved model.

    Parameters
    ----------
    path : Path
        Its folder, such as ``best``; or an experiment's, which means ``best`` in it, or ``final``
        where nothing was evaluated.
    changes : Mapping, optional
        Settings (dotted) that are to be other than the run's, such as ``data.source``.

    Raises
    ------
    SavedModelError
        As ``load_model`` raises it; or nothing says with which settings the model was trained.
    SettingsError
        The changes are none, or don't fit.
    """
    saved = read_saved(_folder(path))
    then = _settings_of(saved)
    known = default_run_config()
    # What is new since has its default, what is gone had no say in what a model is.
    settings = parse_settings(
        known | {key: value for key, value in then.items() if key in known} | dict(changes or {})
    )
    _check_fits(saved.spec, data_spec(settings.data))
    return OpenedModel(saved, settings, build_task(settings))


def _check_fits(trained: DataSpec, here: DataSpec) -> None:
    """Refuse settings of data that the model can't take; statistics are the model's own."""
    then, now = (
        (spec.kind.name, spec.kind.stored_shape, spec.kind.shape, spec.targets)
        for spec in (trained, here)
    )
    if then != now:
        raise SettingsError(
            f"the settings describe other data than the model was trained on: {_outline(here)}, "
            f"and not {_outline(trained)}. Change only where the data are (data.source)"
        )


def _outline(spec: DataSpec) -> str:
    shape = "x".join(map(str, spec.kind.stored_shape))
    return f"{spec.kind.stored} of {shape} with targets {spec.targets}"


def _folder(path: Path) -> Path:
    if not (path / SETTINGS_FILE).is_file():
        return path
    best = path / BEST
    return best if best.exists() or previous_folder(best).exists() else path / FINAL


def _settings_of(saved: SavedModel) -> dict[str, Any]:
    """Return the run's settings, flat; before 0.2 they are beside the model's folder only."""
    beside = saved.folder.absolute().parent / SETTINGS_FILE
    try:
        found = saved.facts.get("settings") or read_json(beside)["settings"]
        return flat(found)
    except (OSError, DamagedFileError, KeyError, TypeError, AttributeError, SettingsError) as error:
        raise SavedModelError(
            f"nothing says with which settings the model in {saved.folder} was trained: it is of "
            f"an older Moonflower, and {beside} can't be read ({error}). Put its experiment's "
            f"{SETTINGS_FILE} there"
        ) from error

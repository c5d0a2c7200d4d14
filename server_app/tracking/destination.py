"""Where numbers can go, and what has to be installed for it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from common.config import Settings, SettingsError, flat
from common.files import read_json
from server_app.tracking.numbers import Line

PROMETHEUS_VARIABLE = "MOONFLOWER_PROMETHEUS_DIR"
"""node_exporter's folder of text files: a setting of the machine."""


class Destination(Protocol):
    """A tracker that is written to; whatever a method raises is that tracker's failure."""

    @property
    def where(self) -> str:
        """Where it is written, for a person."""

    def open(self, lines: Iterable[Line]) -> None:
        """Make what is there exactly ``lines``: nothing doubled, missing, or taken back since.

        It is called at the start, after a resumption, and again after a failure.
        """

    def add(self, line: Line) -> None:
        """Write the next round."""

    def close(self, *, finished: bool) -> None:
        """Write what is held back; ``finished``: all rounds were played."""


@dataclass(frozen=True)
class Source:
    """The experiment that is written.

    Attributes
    ----------
    folder : Path
        The experiment's, as the server writes it.
    out : str
        A folder, or an MLflow server's URI, other than the tracker's own; empty: that.
    """

    folder: Path
    out: str = ""

    @property
    def name(self) -> str:
        """Of the experiment."""
        return self.folder.name

    def facts(self) -> Mapping[str, Any]:
        """Return ``settings.json``, or nothing where it can't be read: numbers go without it."""
        try:
            read = read_json(self.folder / "settings.json")
        except (OSError, ValueError):
            return {}
        return read if isinstance(read, dict) else {}

    def parameters(self) -> dict[str, str]:
        """Return the settings, flat, as text."""
        settings = self.facts().get("settings", {})
        return {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in flat(settings).items()
        }

    @property
    def experiment_id(self) -> str:
        """Made once per experiment; tells it from another of the same name."""
        return str(self.facts().get("id") or self.name)

    def begun(self) -> float:
        """Return when it was started, in seconds since 1970.

        A round has no time of its own on disk: it is this, and the seconds of the rounds up to it.
        So what is written live and what is exported are the same.
        """
        try:
            moment = datetime.fromisoformat(str(self.facts().get("started")))
        except ValueError:
            return 0.0
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True)
class Kind:
    """A tracker that may be asked for.

    Attributes
    ----------
    module : str
        Module and class of ours.
    needs : str
        The package that it imports.
    extra : str
        Moonflower's extra that installs it.
    """

    module: str
    needs: str
    extra: str


KINDS: Mapping[str, Kind] = {
    "tensorboard": Kind("tensorboard_files:TensorBoardFiles", "tensorboard", "tensorboard"),
    "mlflow": Kind("mlflow_run:MlflowRun", "mlflow", "mlflow"),
    "wandb": Kind("wandb_run:WandbRun", "wandb", "wandb"),
    "prometheus": Kind("textfile:Textfile", "prometheus_client", ""),
}


def check_installed(names: Iterable[str]) -> None:
    """Refuse trackers whose packages are not installed here.

    Raises
    ------
    SettingsError
        Names all of them, and what to install.
    """
    lacking = [name for name in names if importlib.util.find_spec(KINDS[name].needs) is None]
    if lacking:
        extras = ",".join(KINDS[name].extra for name in lacking)
        raise SettingsError(
            f"tracking to {' and '.join(lacking)} needs packages that are not installed for "
            f"{sys.executable}: install them there with pip install 'moonflower[{extras}]' (from a "
            f"clone: pip install --constraint scripts/constraints.txt --editable '.[{extras}]'), "
            "or take them out of the setting tracking"
        )


def wanted_here(settings: Settings) -> tuple[str, ...]:
    """Return the trackers of a run on this machine: those it asks for, and the machine's own.

    Raises
    ------
    SettingsError
        See :func:`check_installed`.
    """
    own = ("prometheus",) if os.environ.get(PROMETHEUS_VARIABLE) else ()
    check_installed(settings.trackers)
    return (*settings.trackers, *own)


def make_destination(name: str, source: Source) -> Destination:
    """Return a tracker of :data:`KINDS`; the package that it needs is imported now."""
    module, _, wanted = KINDS[name].module.partition(":")
    found = getattr(importlib.import_module(f"server_app.tracking.{module}"), wanted)
    destination: Destination = found(source)
    return destination


class Moments:
    """When rounds ended, in seconds since 1970: see :meth:`Source.begun`."""

    def __init__(self, source: Source) -> None:
        self._now = source.begun()

    def of(self, line: Line) -> float:
        """Return the moment of the next line."""
        self._now += float(line["seconds"]["total"])
        return self._now

"""What a run leaves on disk: ``OUTPUT_DIR/<experiment>/``."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.config import Settings
from common.data import DataSpec
from common.models import SplitModel, save_model
from common.storage import append_line, write_json
from server_app.history import Outcome, outcome_of
from server_app.query import Client
from server_app.report import RoundReport, finite

SETTINGS_FILE = "settings.json"
METRICS_FILE = "metrics.jsonl"
BEST = "best"
FINAL = "final"


class ExperimentExistsError(FileExistsError):
    """An experiment of this name has results already; nothing is overwritten."""


def experiment_name(settings: Settings) -> str:
    """Return ``experiment``, or a name of algorithm, data source and local time."""
    algorithm = settings.algorithm.replace("+", "-")
    moment = time.strftime("%Y%m%d-%H%M%S")
    return settings.experiment or f"{algorithm}-{settings.data.source}-{moment}"


def refuse_existing(folder: Path) -> None:
    """Raise :class:`ExperimentExistsError` if ``folder`` is there."""
    if folder.exists():
        raise ExperimentExistsError(
            f"experiment {folder.name!r} exists already, in {folder}. Nothing is overwritten: "
            "choose another name with -c experiment=NAME, leave the name empty to have one made, "
            "or move that folder away."
        )


class Tracker:
    """Writes one experiment's folder; made once the run can begin.

    Attributes
    ----------
    folder : Path
    best : RoundReport or None
        The round whose model is in ``best/``; of equal ones the first.
    history : list[Outcome]
        What of the rounds so far decides about later ones, ascending.
    """

    def __init__(self, folder: Path, settings: Settings, spec: DataSpec) -> None:
        self.folder = folder
        self.best: RoundReport | None = None
        self.last: RoundReport | None = None
        self.history: list[Outcome] = []
        self._settings = settings
        self._spec = spec

    def begin(self, clients: Iterable[Client]) -> None:
        """Create the folder and write ``settings.json``.

        Raises
        ------
        ExperimentExistsError
            If another run was faster.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.folder.mkdir()
        except FileExistsError:
            refuse_existing(self.folder)
            raise
        facts = {
            "experiment": self.folder.name,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": self._settings.model_dump(by_alias=True),
            "versions": versions(),
            "clients": [_describe(client) for client in clients],
        }
        write_json(self.folder / SETTINGS_FILE, facts)

    def write_round(self, report: RoundReport, model: SplitModel) -> None:
        """Append the round to ``metrics.jsonl``; keep ``model`` if it is the best so far.

        Parameters
        ----------
        report : RoundReport
        model : SplitModel
            Holds the global weights after the round.
        """
        # The model first: a line in the metrics then never speaks of a best that is not there.
        if self._is_best(report):
            self._save(BEST, report, model)
            self.best = report
        self.last = report
        line = report.record()
        self.history.append(outcome_of(line))
        append_line(self.folder / METRICS_FILE, json.dumps(line, allow_nan=False))

    def write_final(self, report: RoundReport, model: SplitModel) -> None:
        """Save ``model`` as ``final/``."""
        self._save(FINAL, report, model)

    def _is_best(self, report: RoundReport) -> bool:
        if report.score is None:
            return False
        best = self.best.score if self.best else None
        return best is None or report.score[1] > best[1]

    def _save(self, name: str, report: RoundReport, model: SplitModel) -> None:
        facts: dict[str, Any] = {
            "experiment": self.folder.name,
            "algorithm": self._settings.algorithm,
            "seed": self._settings.seed,
            "round": report.server_round,
            "global": finite(report.global_model) if report.global_model else None,
            "clients": finite(report.clients) if report.clients else None,
        }
        if report.score:
            facts["criterion"], facts["accuracy"] = report.score
        save_model(self.folder / name, model, self._settings.model, self._spec, facts)


def versions() -> Mapping[str, str]:
    """Return the versions that a result depends on; a package that is not installed is left out.

    Inside a Flower bundle Moonflower itself is such a package.
    """
    found = {"python": platform.python_version()}
    for package in ("moonflower", "flwr", "torch", "torchvision", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _describe(client: Client) -> dict[str, Any]:
    return {
        "name": client.name,
        "examples-per-label": list(client.examples_per_label),
        "device": client.device,
        "versions": client.versions,
    }

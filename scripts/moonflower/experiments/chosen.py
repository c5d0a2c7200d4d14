"""Which experiment a person means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from common.config import SettingsError
from common.node import expanded
from scripts.moonflower.experiments.experiment import experiment_folders, is_experiment
from scripts.moonflower.repository import ROOT

OutputDir = Annotated[
    Path | None,
    typer.Option(
        help="Where results are. Default: MOONFLOWER_OUTPUT_DIR, else output in the repository."
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        help="What clients keep. Default: MOONFLOWER_STATE_DIR, else state in the repository."
    ),
]


def output_folder(given: Path | None) -> Path:
    """Return the folder of results, where ``moonflower simulate`` puts them; it need not exist."""
    return expanded(str(given or os.environ.get("MOONFLOWER_OUTPUT_DIR") or ROOT / "output"))


def state_folder(given: Path | None) -> Path:
    """Return the folder of clients' states and prepared data; it need not exist."""
    return expanded(str(given or os.environ.get("MOONFLOWER_STATE_DIR") or ROOT / "state"))


def find_experiment(named: str, output: Path) -> Path:
    """Return the folder of an experiment: a path, or a name in the folder of results.

    Raises
    ------
    SettingsError
        There is none; the message lists those that are there.
    """
    for folder in (output / named, expanded(named)):
        if is_experiment(folder):
            return folder
    known = [path.name for path in experiment_folders(output)]
    shown = ", ".join(known[-20:]) or "none"
    raise SettingsError(
        f"there is no experiment {named!r} in {output}, and {named!r} is not the folder of one. "
        f"Those that are there: {shown}. Another folder of results is given with --output-dir"
    )

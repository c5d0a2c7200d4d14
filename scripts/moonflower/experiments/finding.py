"""From what a person types to the folder of an experiment."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.moonflower.experiments.experiment import (
    NotAnExperimentError,
    experiment_folders,
    is_experiment,
)
from scripts.moonflower.repository import ROOT


def output_folder(wanted: Path | None) -> Path:
    """Return where experiments are: what was asked for, else ``MOONFLOWER_OUTPUT_DIR``.

    Else ``output`` in the repository, where ``moonflower simulate`` puts them.
    """
    chosen = wanted or os.environ.get("MOONFLOWER_OUTPUT_DIR") or ROOT / "output"
    return Path(chosen).expanduser().absolute()


def find_experiment(name: str, output: Path) -> Path:
    """Return the folder of an experiment, given by its name or by a path.

    Raises
    ------
    NotAnExperimentError
        There is none; the message names those that are there.
    """
    if is_experiment(path := output / name):
        return path
    if is_experiment(path := Path(name).expanduser().absolute()):
        return path
    known = ", ".join(folder.name for folder in experiment_folders(output)[-20:]) or "none"
    raise NotAnExperimentError(
        f"{name!r} is neither an experiment in {output} nor the path of one. Those that are "
        f"there: {known}. Another folder is named with --output-dir"
    )

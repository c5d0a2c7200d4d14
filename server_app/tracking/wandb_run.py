"""Weights & Biases: an offline run in the experiment's folder, unless WANDB_MODE says otherwise."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import wandb

from server_app.tracking.destination import Moments, Source
from server_app.tracking.numbers import Line, numbers_of

FOLDER = "wandb"


class WandbRun:
    """A run of W&B's with all rounds from the first, made anew whenever a run begins or goes on.

    W&B can't take a step back, and rounds may have been taken back since. So a run that goes on is
    another one there, in the same group.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder = Path(source.out) if source.out else source.folder
        self._run: Any = None

    @property
    def where(self) -> str:
        """The folder that holds the run."""
        return str(self._folder / FOLDER)

    def open(self, lines: Iterable[Line]) -> None:
        """Begin a run with all rounds, in place of the files of one before."""
        if self._run is not None:
            self._run.finish(exit_code=1, quiet=True)
        if not self._source.out:
            shutil.rmtree(self._folder / FOLDER, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._moments = Moments(self._source)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "moonflower",
            group=self._source.name,
            name=self._source.name,
            config=self._source.parameters(),
            dir=str(self._folder),
            mode=os.environ.get("WANDB_MODE") or "offline",  # type: ignore[arg-type]
            # The names and values of the machine's processes are nobody's business.
            settings=wandb.Settings(
                console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True
            ),
        )
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        """Write a round."""
        numbers = {number.name: number.value for number in numbers_of(line)}
        moment = self._moments.of(line)
        self._run.log({**numbers, "_timestamp": moment}, step=line["round"], commit=True)

    def close(self, *, finished: bool) -> None:
        """Write what is held back."""
        self._run.finish(exit_code=0 if finished else 1)
        # Its service ends by itself, but some time later, and writes until then.
        wandb.teardown()

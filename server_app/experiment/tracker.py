"""What a run leaves on disk: ``OUTPUT_DIR/<experiment>/``."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from common import records
from common.config import Settings
from common.data import DataSpec, Moments, Statistics
from common.files import (
    append_line,
    flush_folder,
    make_folder,
    recover_folder,
    remove_unfinished,
    write_bytes,
)
from common.logs import NAME
from common.models import (
    SplitModel,
)
from common.tasks import build_task
from server_app.clients.query import Client
from server_app.errors import OutputError, ResumeError
from server_app.experiment.activity import Activity
from server_app.experiment.checkpoint import (
    Best,
    Checkpoint,
    has_damaged,
    json_lines,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from server_app.experiment.layout import BEST, CHECKPOINTS, FINAL, METRICS_FILE, SETTINGS_FILE
from server_app.experiment.resume import (
    ExperimentExistsError,
    check_settings,
    locked,
    refuse_existing,
    refuse_missing,
)
from server_app.experiment.saved_round import SavedRound, best_in
from server_app.experiment.settings_file import (
    note_resumption,
    read_settings,
    versions,
    warn_of_versions,
    write_settings,
)
from server_app.report.history import Outcome, outcome_of
from server_app.report.round_report import RoundReport

log = logging.getLogger(NAME)


class Tracker:
    """Writes one experiment's folder.

    :meth:`begin` makes it: a run that can't begin leaves none.

    Attributes
    ----------
    folder : Path
    experiment_id : str
        Made when the experiment begins and kept when it is resumed. It travels with every
        instruction, so that clients don't take state of another experiment of this name for its.
    lines : list[dict]
        ``metrics.jsonl`` so far, ascending.
    history : list[Outcome]
        What of them decides about later rounds.
    headline : Headline
        The score that ``best/`` is chosen by.
    activity : Activity
        For whoever looks on.
    best : Best or None
        The round whose model is in ``best/``; of equal ones the first.
    statistics : Statistics
        What the data of all sites are standardised by, from the first :meth:`begin` on.
    """

    def __init__(self, folder: Path, settings: Settings, spec: DataSpec) -> None:
        self.folder = folder
        self.experiment_id = uuid.uuid4().hex
        self.best: Best | None = None
        self.statistics = Statistics()
        self.lines: list[dict[str, Any]] = []
        self.history: list[Outcome] = []
        self.headline = build_task(settings).headline
        self.activity = Activity(folder)
        self._settings = settings
        self._spec = spec
        self._examples: dict[str, int] = {}
        self._reopened = False
        self._held = ExitStack()

    def begin(self, clients: Iterable[Client]) -> None:
        """Say in ``settings.json`` that rounds begin, or go on after :meth:`reopen`.

        Raises
        ------
        ExperimentExistsError
            A new experiment, but another run was faster.
        OutputError
            The folder can't be written.
        """
        clients = list(clients)
        self._examples |= {each.name: sum(each.examples_per_label) for each in clients}
        # A round that is on disk was played with those of its checkpoint.
        if not self.lines:
            self.statistics = self._pooled(clients)
        with _explained(self.folder):
            if self._reopened:
                note_resumption(self.folder, self._settings, self.experiment_id, clients)
                return
            make_folder(self.folder.parent)
            try:
                self.folder.mkdir()
            except FileExistsError:
                refuse_existing(self.folder)
                raise
            flush_folder(self.folder.parent)
            self._held.enter_context(locked(self.folder))
            write_settings(self.folder, self._settings, self.experiment_id, clients)

    def close(self) -> None:
        """Let other servers into the folder again."""
        self.activity.stop("")
        self._held.close()

    def reopen(self) -> Checkpoint | None:
        """Lock an experiment that exists and return its newest whole checkpoint.

        Returns
        -------
        Checkpoint or None
            None if the experiment ended before its first round did.

        Raises
        ------
        NothingToResumeError
            There is no such experiment.
        ResumeError
            It was started with other settings, or its checkpoints are gone or all damaged.
        OutputError
            Another server is working on it.
        """
        refuse_missing(self.folder)
        self._held.enter_context(locked(self.folder))
        self._reopened = True
        with _explained(self.folder):
            remove_unfinished(self.folder)
            checkpoint = newest_checkpoint(self._checkpoints)
            played = (self.folder / METRICS_FILE).exists() or has_damaged(self._checkpoints)
            # A server that was killed at once may not have written its settings.
            if checkpoint or played or (self.folder / SETTINGS_FILE).exists():
                saved = read_settings(self.folder)
                check_settings(saved["settings"], self._settings)
                self.experiment_id = str(saved.get("id") or self.experiment_id)
                self._examples = {
                    str(each["name"]): sum(each["examples-per-label"])
                    for each in saved.get("clients", [])
                }
            if played and checkpoint is None:
                raise ResumeError(
                    f"experiment {self.folder.name!r} has no whole checkpoint in "
                    f"{self._checkpoints}, though rounds were played: put one back from a backup, "
                    f"or start another experiment. What else is there is untouched"
                )
        return checkpoint

    def restore(self, checkpoint: Checkpoint, model: SplitModel) -> None:
        """Make the reopened folder what it was at the end of the checkpoint's round.

        A killed server may have written more than the checkpoint (lines of a later round, if the
        newest checkpoint was damaged) or less (the line or ``best/`` of its round).

        Parameters
        ----------
        checkpoint : Checkpoint
            From :meth:`reopen`.
        model : SplitModel
            Holds the checkpoint's global weights.

        Raises
        ------
        OutputError
            The folder can't be written.
        ResumeError
            Its best round was chosen by another score than ``task.headline``.
        """
        warn_of_versions(checkpoint.versions)
        self.statistics = checkpoint.statistics
        self._refuse_another_headline(checkpoint.best)
        self.lines = [dict(line) for line in checkpoint.lines]
        self.history = [outcome_of(line, self.headline) for line in self.lines]
        with _explained(self.folder):
            for name in (BEST, FINAL):
                recover_folder(self.folder / name)
            write_bytes(self.folder / METRICS_FILE, json_lines(self.lines))
            self._restore_best(checkpoint, model)
            prune_checkpoints(self._checkpoints, self._settings.server.keep_checkpoints)

    def write_round(
        self, report: RoundReport, model: SplitModel, strategy: Mapping[str, Tensor]
    ) -> None:
        """Save all that the round leaves: checkpoint, ``best/``, its line in ``metrics.jsonl``.

        The checkpoint comes first. It holds what the other two are made of, so that whenever the
        server is killed, :meth:`restore` can finish them.

        Parameters
        ----------
        report : RoundReport
        model : SplitModel
            Holds the global weights after the round.
        strategy : Mapping[str, Tensor]
            :func:`server_app.strategies.strategy_state.strategy_state` after the round.

        Raises
        ------
        OutputError
            The disk is full, read-only or failing.
        """
        line = report.record()
        is_best = report.score is not None and (
            self.best is None or self.headline.better(report.score[1], self.best.score)
        )
        if is_best and report.score is not None:
            self.best = Best(report.server_round, *report.score)
        self.lines.append(line)
        self.history.append(outcome_of(line, self.headline))
        arrays = records.shared_state(model, self._settings.model)
        checkpoint = Checkpoint(
            report.server_round,
            arrays,
            strategy,
            self.lines,
            self.best,
            versions(),
            self.statistics,
        )
        with _explained(self.folder):
            save_checkpoint(self._checkpoints, checkpoint)
            if is_best:
                self._save_model(BEST, model)
            append_line(self.folder / METRICS_FILE, json.dumps(line, allow_nan=False))
            prune_checkpoints(self._checkpoints, self._settings.server.keep_checkpoints)

    def write_final(self, model: SplitModel) -> None:
        """Save ``model``, which holds the weights after the last round, as ``final/``.

        Raises
        ------
        OutputError
            The disk is full, read-only or failing.
        """
        with _explained(self.folder):
            self._save_model(FINAL, model)
        self.activity.finish()

    def _pooled(self, clients: Sequence[Client]) -> Statistics:
        statistics = Statistics()
        if self._spec.measured:
            moments = [client.moments for client in clients if client.moments]
            statistics = Statistics.of(Moments.pooled(moments))
        if self._settings.task.class_weights == "federation":
            columns = zip(*(client.examples_per_label for client in clients), strict=True)
            return replace(statistics, label_counts=tuple(map(sum, columns)))
        return statistics

    @property
    def _checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    def _refuse_another_headline(self, best: Best | None) -> None:
        """Catch what settings don't show: an experiment that is older than ``task.headline``."""
        if best is not None and best.score_name != self.headline.name:
            raise ResumeError(
                f"experiment {self.folder.name!r} was begun with task.headline "
                f"{best.score_name!r}, now it is {self.headline.name!r}: give it as it was"
            )

    def _restore_best(self, checkpoint: Checkpoint, model: SplitModel) -> None:
        """Bring ``best/`` and ``self.best`` together again."""
        self.best, found = checkpoint.best, best_in(self.folder / BEST)
        if found == self.best:
            return
        if self.best is not None and self.best.server_round == checkpoint.server_round:
            self._save_model(BEST, model)
        elif found is not None and found.server_round > checkpoint.server_round:
            # Of a round whose checkpoint was lost, and better than all that are left.
            self.best = found
        else:
            log.warning(
                "%s is gone or damaged, and with it the model of round %d: the best of the rounds "
                "from now on will be kept",
                self.folder / BEST,
                self.best.server_round if self.best else 0,
            )
            self.best = None

    def _save_model(self, name: str, model: SplitModel) -> None:
        saved = SavedRound(self.folder.name, self._settings, self._spec.fitted(self.statistics))
        saved.write(self.folder / name, model, self.lines, self._examples)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the disk says into an error that says what to do."""
    try:
        yield
    except ExperimentExistsError:
        raise
    except OSError as error:
        raise OutputError(
            f"the results in {folder} can't be written or read: {error}. What was written before "
            "is intact. Free space or mend the folder, then go on with "
            f"resume=true experiment={folder.name}"
        ) from error

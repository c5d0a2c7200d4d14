"""The ServerApp: read the settings, build, run."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common import logs, records
from common.config import Settings, SettingsError, parse_settings
from common.data import DataError, ExampleSet, data_spec, load_server_test_set
from common.models import SplitModel, build_model
from common.node import Folders, choose_device
from server_app.grid import Clock
from server_app.loop import run_rounds
from server_app.phases import DivergedError, Federation, RoundFailedError
from server_app.report import describe_accuracy
from server_app.roster import Roster, StartError, gather
from server_app.strategies import build_strategy
from server_app.tracking import (
    BEST,
    FINAL,
    METRICS_FILE,
    SETTINGS_FILE,
    ExperimentExistsError,
    Tracker,
    experiment_name,
    refuse_existing,
)

app = ServerApp()
log = logging.getLogger(logs.NAME)

EXPECTED_ERRORS = (
    SettingsError,
    DataError,
    StartError,
    RoundFailedError,
    DivergedError,
    ExperimentExistsError,
)
"""Errors whose message says all that a person needs."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment."""
    serve(grid, context, Clock())


def serve(grid: Grid, context: Context, clock: Clock) -> Path:
    """Run one experiment and return its folder.

    Raises
    ------
    SettingsError, DataError, StartError, RoundFailedError, DivergedError, ExperimentExistsError
        After logging the message. They reach Flower, which then marks the run as failed.
    """
    logs.install()
    try:
        return _serve(grid, context, clock)
    except EXPECTED_ERRORS as error:
        log.error("%s", error)
        raise


def _serve(grid: Grid, context: Context, clock: Clock) -> Path:
    # Everything that can be wrong without any node comes before the waiting.
    settings = parse_settings(context.run_config)
    settings = settings.model_copy(update={"experiment": experiment_name(settings)})
    folders = Folders.find(context.node_config)
    refuse_existing(folders.output / settings.experiment)
    torch.set_num_threads(settings.train.cpu_threads)
    device = choose_device()
    spec = data_spec(settings.data)
    model = build_model(settings.model, spec, settings.seed).to(device)
    test_set = _test_set(settings, folders, device, model)

    roster = gather(grid, settings, clock)
    _describe(roster)
    strategy = build_strategy(settings, model, roster, device)
    tracker = Tracker(folders.output / settings.experiment, settings, spec)
    tracker.begin(roster.clients)
    arrays = records.to_arrays(records.shared_state(model, settings.model))
    federation = Federation(settings, grid, roster, strategy, model, test_set, tracker, clock)
    try:
        run_rounds(federation, arrays)
        _say_result(tracker)
    finally:
        _say_where(tracker.folder)
    return tracker.folder


def _test_set(
    settings: Settings, folders: Folders, device: torch.device, model: SplitModel
) -> ExampleSet | None:
    """Return the server's test set, or None where the global model can't be evaluated here."""
    shared = records.shared_state(model, settings.model)
    if set(shared) != set(model.state_dict()):
        log.info(
            "BatchNorm's running statistics stay with the clients (model.batch-norm-buffers is "
            "local), so the server can't evaluate the global model; the best round is chosen by "
            "the clients' mean accuracy"
        )
        return None
    test_set = load_server_test_set(settings, folders, device)
    if test_set is None:
        log.info("the server has no test set in %s: only clients evaluate", folders.data)
    return test_set


def _describe(roster: Roster) -> None:
    sizes = sorted(sum(client.examples_per_label) for client in roster.clients)
    log.info(
        "%d clients with %d examples, %d to %d each",
        len(sizes),
        sum(sizes),
        sizes[0],
        sizes[-1],
    )


def _say_result(tracker: Tracker) -> None:
    last, best = tracker.last, tracker.best
    if last is None:
        return
    accuracy = ", ".join(describe_accuracy(last.global_model, last.clients)) or "not evaluated"
    log.info("finished after round %d: %s", last.server_round, accuracy)
    if best is not None and best.score is not None:
        log.info("best: %s %.3f in round %d", *best.score, best.server_round)


def _say_where(folder: Path) -> None:
    written = [
        name for name in (SETTINGS_FILE, METRICS_FILE, BEST, FINAL) if (folder / name).exists()
    ]
    log.info("results are in %s: %s", folder, ", ".join(written) or "nothing yet")

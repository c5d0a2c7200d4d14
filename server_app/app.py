"""The ServerApp: read the settings, build, run."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common import logs
from common.config import Settings, SettingsError, parse_settings
from common.data import ExampleSet, data_spec, load_server_test_set
from common.errors import MoonflowerError
from common.models import SplitModel, build_model, private_names
from common.node import Folders, choose_device
from common.tasks import build_task
from server_app.clients.gather import gather
from server_app.clients.roster import Roster
from server_app.errors import NOTHING_TO_RESUME, PERMANENT, NothingToResumeError, ResumeError
from server_app.exchange.clock import Clock
from server_app.exchange.parts import contained
from server_app.experiment.checkpoint import Checkpoint
from server_app.experiment.layout import BEST, FINAL, METRICS_FILE, SETTINGS_FILE
from server_app.experiment.resume import experiment_name, refuse_existing
from server_app.experiment.tracker import Tracker
from server_app.report.round_report import describe_scores
from server_app.rounds.federation import Federation
from server_app.rounds.loop import run_rounds, why_over
from server_app.strategies import build_strategy
from server_app.strategies.strategy_state import load_strategy_state
from server_app.tracking.beside import tracked
from server_app.tracking.destination import wanted_here

app = ServerApp()
log = logging.getLogger(logs.NAME)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment."""
    serve(contained(grid), context, Clock())


def serve(grid: Grid, context: Context, clock: Clock) -> Path:
    """Run one experiment and return its folder.

    Raises
    ------
    MoonflowerError
        After logging the message. It reaches Flower, which then marks the run as failed.
    """
    logs.install()
    try:
        return _serve(grid, context, clock)
    except MoonflowerError as error:
        log.error("%s", error)
        # It may quote a node, which is not asked whether the run is tried again.
        text = str(error).replace(PERMANENT, "(...)")
        if not isinstance(error, NothingToResumeError):
            text = text.replace(NOTHING_TO_RESUME, "(...)")
        error.args = (f"{text}\n{PERMANENT}" if error.permanent else text,)
        raise


def _serve(grid: Grid, context: Context, clock: Clock) -> Path:
    # Everything that can be wrong without any node comes before the waiting.
    settings = parse_settings(context.run_config)
    settings = settings.model_copy(update={"experiment": experiment_name(settings)})
    trackers = wanted_here(settings)
    folders = Folders.find(context.node_config)
    spec = data_spec(settings.data)
    with closing(Tracker(folders.output / settings.experiment, settings, spec)) as tracker:
        checkpoint = None
        if settings.resume:
            checkpoint = tracker.reopen()
        else:
            refuse_existing(tracker.folder)
        torch.set_num_threads(settings.train.cpu_threads)
        device = choose_device()
        model = build_model(settings.model, spec, settings.seed).to(device)
        _check_protocol(settings, model)
        if checkpoint and _restored(tracker, checkpoint, model, settings):
            with tracked(tracker.folder, trackers, len(tracker.lines)):
                return tracker.folder  # they may lack what the killed server wrote last
        test_set = _test_set(settings, folders, device, model)
        roster = gather(grid, settings, clock)
        _describe(roster)
        strategy = build_strategy(settings, model, roster, device)
        if checkpoint:
            load_strategy_state(strategy, checkpoint.strategy)
        tracker.begin(roster.clients)
        if test_set is not None and tracker.statistics.mean:
            # Opened before, so that a mistake in it is told without waiting for clients.
            test_set = load_server_test_set(settings, folders, device, tracker.statistics)
        try:
            with tracked(tracker.folder, trackers, len(tracker.lines)) as tracking:
                federation = Federation(
                    settings, grid, roster, strategy, model, test_set, tracker, clock, tracking
                )
                run_rounds(federation, 1 + (checkpoint.server_round if checkpoint else 0))
            _say_result(tracker)
        except MoonflowerError as error:
            tracker.activity.stop(str(error))
            raise
        finally:
            _say_where(tracker.folder)
        return tracker.folder


def _restored(
    tracker: Tracker, checkpoint: Checkpoint, model: SplitModel, settings: Settings
) -> bool:
    """Put a checkpoint into the tracker and the model; return whether no round is left."""
    try:
        model.load_state_dict({**model.state_dict(), **checkpoint.arrays})
    except RuntimeError as error:
        raise ResumeError(
            f"the model in the checkpoint of round {checkpoint.server_round} is not the one that "
            f"the settings describe here: {error}\nResume with the version of Moonflower that "
            "wrote it, or start another experiment"
        ) from error
    tracker.restore(checkpoint, model)
    over = why_over(tracker, settings)
    if not over:
        log.info("going on after round %d", checkpoint.server_round)
        return False
    log.info("nothing is left to do: %s", over)
    # It may have been killed just before.
    tracker.write_final(model)
    _say_result(tracker)
    _say_where(tracker.folder)
    return True


def _check_protocol(settings: Settings, model: SplitModel) -> None:
    averaged = model.buffer_names() - private_names(model, settings.model)
    if settings.data.client_test == "official" and averaged:
        raise SettingsError(
            "data.client-test='official' evaluates every client with BatchNorm statistics of its "
            "own, and model.batch-norm-buffers='averaged' leaves it none: set 'local', or take "
            "model.norm='group', or evaluate with 'validation' or 'global'"
        )


def _test_set(
    settings: Settings, folders: Folders, device: torch.device, model: SplitModel
) -> ExampleSet | None:
    """Return the server's test set, or None where the global model can't be evaluated here."""
    if private_names(model, settings.model):
        stays = {
            "all": "BatchNorm's running statistics stay with the clients "
            "(model.batch-norm-buffers is local)",
            "predictor": "the encoders stay with the clients (model.sharing is predictor)",
            "nothing": "the models stay with the clients (model.sharing is nothing)",
        }[settings.model.sharing]
        log.info(
            "%s, so the server can't evaluate the global model; the best round is chosen by the "
            "clients' mean %s",
            stays,
            build_task(settings).headline.name,
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
    last, best = tracker.lines[-1], tracker.best
    # A line of version 0.1 has no personal models.
    summaries = last["global"], last["clients"], last.get("personal")
    scores = describe_scores(tracker.headline, *summaries)
    log.info("finished after round %d: %s", last["round"], ", ".join(scores) or "not evaluated")
    if best is not None:
        log.info("best: %s %.3f in round %d", best.criterion, best.score, best.server_round)


def _say_where(folder: Path) -> None:
    written = [
        name for name in (SETTINGS_FILE, METRICS_FILE, BEST, FINAL) if (folder / name).exists()
    ]
    log.info("results are in %s: %s", folder, ", ".join(written) or "nothing yet")

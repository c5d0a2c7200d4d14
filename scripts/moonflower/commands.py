"""The commands: what a person types, checked before anything starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.config import ALGORITHMS
from scripts.moonflower import machines, provision
from scripts.moonflower.doctor.command import app as doctor
from scripts.moonflower.experiments.cleaning import clean
from scripts.moonflower.experiments.compare_command import compare
from scripts.moonflower.experiments.export import export
from scripts.moonflower.experiments.listing import Json, list_experiments
from scripts.moonflower.models.command import evaluate, export_model, predict
from scripts.moonflower.options import NoReport, Preset, RunConfig, Verbose
from scripts.moonflower.pages import command as pages
from scripts.moonflower.repository import ROOT
from scripts.moonflower.research.benchmark.command import benchmark
from scripts.moonflower.research.reproduce.command import reproduce

if TYPE_CHECKING:
    from scripts.moonflower.submission import Submission

app = typer.Typer(
    help="Moonflower: federated learning on data that do not look alike.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(doctor, name="doctor")

BAD_SETTINGS = 2
OUTPUT = "MOONFLOWER_OUTPUT_DIR"
STATE = "MOONFLOWER_STATE_DIR"


@app.callback()
def _commands() -> None:
    """Keep the names of the commands, however many there are."""


app.command("provision")(provision.provision)
app.add_typer(provision.nodes_app, name="nodes")
app.command("superlink")(machines.superlink)
app.command("supernode")(machines.supernode)
app.command("fence")(machines.fence)
app.command("report")(pages.report)
app.command("dashboard")(pages.dashboard)
app.command("watch")(pages.watch)
app.command("benchmark")(benchmark)
app.command("reproduce")(reproduce)
app.command("export-model")(export_model)
app.command("predict")(predict)
app.command("evaluate")(evaluate)
app.command("export")(export)
app.command("compare")(compare)
app.command("list")(list_experiments)
app.command("clean")(clean)


@app.command()
def simulate(
    algorithm: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(ALGORITHMS)}, or a sum such as moon+fedgen."),
    ] = None,
    preset: Preset = None,
    run_config: RunConfig = None,
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="Simulated clients. Default: what the preset says, else 10."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    experiment: Annotated[
        str | None,
        typer.Option(help="Name of the folder below --output-dir. Default: made from the time."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets are. Default: ~/.moonflower/data.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="Where results go. Default: output in the repository.")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="What clients keep between rounds. Default: state in the repository."),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(min=1, help="Clients that train at once. Default: as many as cores."),
    ] = None,
    gpus_per_client: Annotated[
        float, typer.Option(min=0.0, help="Part of a GPU for each, as 0.25. 0: on the CPU.")
    ] = 0.0,
    no_report: NoReport = False,
    verbose: Verbose = False,
) -> None:
    """Train on this machine: `flwr run` in simulation, with nothing left running afterwards.

    Options come after the preset and -c, which come after the defaults in pyproject.toml.
    """
    from client_app.computation import check_computation
    from common.config import SettingsError
    from common.node import expanded
    from scripts.moonflower.folders import writable
    from scripts.moonflower.run_config import make_plan
    from scripts.moonflower.session import run
    from scripts.moonflower.simulation import Machine, check_gpus, default_actors, trained_on
    from server_app.experiment.resume import ExperimentExistsError, refuse_existing

    options = {
        "algorithm": algorithm,
        "num-rounds": rounds,
        "seed": seed,
        "experiment": experiment,
    }
    try:
        plan = make_plan(preset, run_config or [], options, clients)
        check_gpus(gpus_per_client)
        check_computation(plan.settings.train, trained_on(gpus_per_client))
        folders = {
            OUTPUT: writable(output_dir or os.environ.get(OUTPUT) or ROOT / "output"),
            STATE: writable(state_dir or os.environ.get(STATE) or ROOT / "state"),
        }
        if data_dir is not None:
            folders["MOONFLOWER_DATA_DIR"] = expanded(str(data_dir))
        if not plan.settings.resume:
            refuse_existing(folders[OUTPUT] / plan.settings.experiment)
    except (SettingsError, ExperimentExistsError) as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_SETTINGS) from None
    chosen = actors or default_actors(plan.clients, plan.settings.train.cpu_threads)
    code = run(plan, Machine(folders, chosen, gpus_per_client), verbose=verbose)
    if not no_report:
        pages.write_after_run(folders[OUTPUT] / plan.settings.experiment)
    raise typer.Exit(code)


@app.command("run")
def run_on_superlink(
    superlink: Annotated[str | None, typer.Argument()] = None,
    preset: Preset = None,
    run_config: RunConfig = None,
    experiment: Annotated[
        str | None,
        typer.Option(help="Name of the results' folder. Default: made from the time."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an experiment that exists.")
    ] = False,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            help="Submit it again with resume=true when the SuperLink or the ServerApp died.",
        ),
    ] = False,
    max_restarts: Annotated[
        int,
        typer.Option(min=1, help="With --keep-going: tries in a row without a finished round."),
    ] = 10,
    federation_config: Annotated[
        str, typer.Option(help="Passed on to flwr run: a simulation's number of SuperNodes.")
    ] = "",
    source: Annotated[Path, typer.Option("--app", help="Folder of the app.")] = ROOT,
    no_report: NoReport = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Train on a SuperLink: submit the run and watch it to its end.

    SUPERLINK is a connection in config.toml of Flower's home (FLWR_HOME, else ~/.flwr). Default:
    the one that is the default there. With --json, standard output has one object at the end, and
    all else is on standard error.
    """
    from contextlib import nullcontext, redirect_stdout

    from common.config import SettingsError
    from common.node import Folders
    from scripts.moonflower.experiments.listing import run_as_json
    from scripts.moonflower.progress import Progress
    from scripts.moonflower.run_config import make_overrides
    from scripts.moonflower.submission import Submission

    options = {"experiment": experiment, "resume": resume or None}
    try:
        overrides = make_overrides(preset, run_config or [], options)
    except SettingsError as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_SETTINGS) from None
    # Of results that are on this machine; a server elsewhere has its own.
    folder = Folders.find().output / overrides["experiment"]
    with redirect_stdout(sys.stderr) if json else nullcontext():
        progress = Progress(lambda line: print(line, flush=True), verbose=verbose)
        submission = Submission(source.absolute(), superlink, federation_config)
        code, watched = _watch_run(
            submission, overrides, max_restarts if keep_going else 0, progress
        )
        if watched and not no_report:
            pages.write_after_run(folder)
    if json:
        typer.echo(run_as_json(folder, code))
    raise typer.Exit(code)


def _watch_run(
    submission: Submission, overrides: dict[str, Any], restarts: int, show: Callable[[str], None]
) -> tuple[int, bool]:
    """Return the exit code of a run, and whether it was watched to its end."""
    from scripts.moonflower import keep_going as watching
    from scripts.moonflower.interruption import InterruptedRunError, raising_on_signals

    def say(text: str) -> None:
        typer.echo(f"moonflower: {text}", err=True)

    try:
        with raising_on_signals():
            limits = watching.Limits(restarts)
            return watching.keep_going(submission, overrides, limits, show, say), True
    except InterruptedRunError as error:
        say(
            f"{error}; the run goes on without being watched. `flwr stop RUN_ID` ends it, --resume "
            f"--experiment {overrides['experiment']} goes on with it later"
        )
        return error.exit_code, False


@app.command()
def docs(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a file is not current.")
    ] = False,
) -> None:
    """Write what of docs/ is made from the code: settings.md and the pictures of the house."""
    from scripts.moonflower.generated_docs import pages

    stale = [path for path, text in pages() if not path.is_file() or path.read_text() != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        typer.echo(f"not current: {names}. Run moonflower docs", err=True)
        raise typer.Exit(1)
    for path, text in pages() if not check else ():
        path.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {path}")

"""``moonflower clean``: what could be deleted, and only when asked for, deleted."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.config.names import RESERVED_NAME
from common.files import UNFINISHED
from scripts.moonflower.experiments.listing import OutputDir, size

if TYPE_CHECKING:
    from scripts.moonflower.experiments.experiment import Experiment

FAILED = 1
_DAMAGED = re.compile(r"round-\d{6,}(\.safetensors)?\.damaged-\d+")
_LEFT = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(UNFINISHED)}")
_PREPARED = re.compile(r"(.+)-(?:train|test|partition)-[0-9a-f]{16}(?:\.npz)?")


@dataclass(frozen=True)
class Leftover:
    """What could go.

    Attributes
    ----------
    path : Path
        A file or a folder, not a link.
    why : str
    lock : Path
        Held by whoever works there.
    """

    path: Path
    why: str
    lock: Path

    def bytes(self) -> int:
        """Return its size; links are not followed."""
        from scripts.moonflower.experiments.experiment import size_of

        return size_of(self.path)


def clean(
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete it. Without: only say what could go.")
    ] = False,
    output_dir: OutputDir = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="What clients keep. Default: MOONFLOWER_STATE_DIR, else state in the repository."
        ),
    ] = None,
) -> None:
    """Say what could be deleted, with sizes; --yes deletes it.

    Checkpoints and clients' states of experiments that are finished (these can't get more rounds
    then), prepared data that no unfinished experiment uses (made again when needed), damaged files
    and what interrupted writes left. Results, best and final models stay, and so does all that an
    experiment needs which runs or can be resumed.
    """
    from scripts.moonflower.experiments.finding import output_folder
    from scripts.moonflower.repository import ROOT

    state = state_dir or os.environ.get("MOONFLOWER_STATE_DIR") or ROOT / "state"
    found = list(leftovers(output_folder(output_dir), Path(state).expanduser().absolute()))
    total, failed = 0, False
    for each in found:
        number = each.bytes()
        problem = delete(each) if yes else ""
        failed = failed or bool(problem)
        total += 0 if problem else number
        done = problem or ("deleted" if yes else "could go")
        typer.echo(f"{size(number):>9}  {each.path}: {each.why}; {done}")
    if not found:
        typer.echo("nothing could go")
    elif yes:
        typer.echo(f"{size(total)} deleted")
    else:
        typer.echo(f"{size(total)} in all. --yes deletes it")
    raise typer.Exit(FAILED if failed else 0)


def leftovers(output: Path, state: Path) -> Iterator[Leftover]:
    """Yield what could go; links are passed over, and so is what somebody holds locked."""
    from scripts.moonflower.experiments.experiment import (
        State,
        experiment_folders,
        is_locked,
        read_experiment,
    )

    experiments = [read_experiment(folder) for folder in experiment_folders(output)]
    for each in experiments:
        if each.state is not State.RUNNING:
            yield from _of_server(each, over=each.state is State.FINISHED)
        own = state / each.name
        for client in sorted(own.iterdir()) if _is_folder(own) else ():
            if _is_folder(client) and not is_locked(client):
                yield from _of_client(client, each, over=each.state is State.FINISHED)
    going_on = [each for each in experiments if each.state is not State.FINISHED]
    wanted = {str(each.settings.get("data.source")) for each in going_on}
    yield from _prepared(state / RESERVED_NAME, wanted, known=bool(experiments))


def delete(leftover: Leftover) -> str:
    """Delete it under its lock; return why it can't be, or "" when it is gone."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(leftover.lock, timeout=0):
            if leftover.path.is_symlink():
                return "left: it has become a link"
            if leftover.path.is_dir():
                shutil.rmtree(leftover.path)
            else:
                leftover.path.unlink(missing_ok=True)
    except Timeout:
        return "left: somebody works there now"
    except OSError as error:
        return f"left: {error}"
    with suppress(OSError):
        leftover.path.parent.rmdir()  # of the last client
    return ""


def _of_server(experiment: Experiment, *, over: bool) -> Iterator[Leftover]:
    from server_app.experiment.layout import CHECKPOINTS, LOCK_FILE

    lock = experiment.folder / LOCK_FILE
    checkpoints = experiment.folder / CHECKPOINTS
    if over and _is_folder(checkpoints):
        yield Leftover(checkpoints, f"checkpoints of {experiment.name}, which is finished", lock)
    folders = [experiment.folder, *(() if over else filter(_is_folder, [checkpoints]))]
    yield from _broken(folders, lock)


def _of_client(client: Path, experiment: Experiment, *, over: bool) -> Iterator[Leftover]:
    from server_app.experiment.layout import LOCK_FILE

    if over and _is_of(client, str(experiment.facts.get("id", ""))):
        why = f"state of {client.name} in {experiment.name}, which is finished"
        yield Leftover(client, why, client / LOCK_FILE)
        return
    parts = [path for path in client.iterdir() if _is_folder(path)]
    yield from _broken([client, *parts], client / LOCK_FILE)


def _is_of(client: Path, experiment_id: str) -> bool:
    """Return whether all that a client keeps is of this experiment, and not of another's name."""
    from common.files import DamagedFileError
    from common.storage import read_facts

    files = [path for path in client.rglob("round-*.safetensors") if path.is_file()]
    try:
        return all(read_facts(path).get("experiment-id") == experiment_id for path in files)
    except (DamagedFileError, OSError):
        return False


def _broken(folders: Sequence[Path], lock: Path) -> Iterator[Leftover]:
    """Yield damaged files beside whole ones, and what was never finished."""
    for folder in folders:
        names = sorted(path for path in folder.iterdir() if not path.is_symlink())
        whole = any(re.fullmatch(r"round-\d{6,}(\.safetensors)?", path.name) for path in names)
        for path in names:
            if _LEFT.fullmatch(path.name):
                yield Leftover(path, "left of a write that was interrupted", lock)
            elif whole and _DAMAGED.fullmatch(path.name):
                yield Leftover(path, "damaged, and set aside", lock)


def _prepared(folder: Path, wanted: set[str], *, known: bool) -> Iterator[Leftover]:
    """Yield prepared data; where no experiment is known here, nobody can say what is needed."""
    if not known or not _is_folder(folder):
        return
    for path in sorted(folder.iterdir()):
        found = _PREPARED.fullmatch(path.name)
        if found and not path.is_symlink() and found[1] not in wanted:
            why = f"prepared data of {found[1]}, which no unfinished experiment uses"
            yield Leftover(path, why, path.with_name(f"{path.name}.lock"))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()

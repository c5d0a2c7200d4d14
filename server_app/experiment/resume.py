"""May this experiment begin, or be resumed, with these settings, by this process?"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from common.config import Settings, flat
from common.errors import MoonflowerError
from common.logs import NAME
from server_app.errors import NOTHING_TO_RESUME, NothingToResumeError, OutputError, ResumeError
from server_app.experiment.layout import LOCK_FILE

log = logging.getLogger(NAME)

FREE_TO_CHANGE = frozenset(
    {
        "resume",
        "resume-changes",
        "data.download",
        "server.min-clients",
        "server.start-timeout",
        "server.round-deadline",
        "server.straggler-grace",
        "server.failure-policy",
        "server.replies-in-memory-mb",
        "server.patience",
        "server.stop-metric",
        "server.alarm-rounds",
        "server.keep-checkpoints",
        "tracking",
    }
)
"""Settings that don't change what a round computes from the replies it has, only how long the
server waits, when it gives up, and what it says and keeps. ``num-rounds`` may grow."""

LOCK_SECONDS = 10.0
"""A server that is being ended may need a moment."""


class ExperimentExistsError(MoonflowerError, FileExistsError):
    """An experiment of this name has results already; nothing is overwritten."""

    permanent = True


def experiment_name(settings: Settings) -> str:
    """Return ``experiment``, or a name of algorithm, data source and local time."""
    algorithm = settings.algorithm.replace("+", "-")
    moment = time.strftime("%Y%m%d-%H%M%S")
    return settings.experiment or f"{algorithm}-{settings.data.source}-{moment}"


@contextmanager
def locked(folder: Path, timeout: float | None = None) -> Iterator[None]:
    """Keep other servers out of an experiment's folder while the block runs.

    The operating system releases the lock when a process dies.

    Raises
    ------
    OutputError
        Another process holds it, or the folder can't be written.
    """
    path = folder / LOCK_FILE
    seconds = LOCK_SECONDS if timeout is None else timeout
    lock = FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        raise OutputError(
            f"another server is working on experiment {folder.name!r} (it holds {path}): two at "
            "once would mix their results. Wait until that run has ended, or stop it with "
            "`flwr stop RUN_ID`"
        ) from None
    except OSError as error:
        raise OutputError(f"{path} can't be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()


def refuse_existing(folder: Path) -> None:
    """Raise :class:`ExperimentExistsError` if ``folder`` is there."""
    if folder.exists():
        raise ExperimentExistsError(
            f"experiment {folder.name!r} exists already, in {folder}. Nothing is overwritten: "
            "go on with it with -c resume=true, choose another name with -c experiment=NAME, leave "
            "the name empty to have one made, or move that folder away."
        )


def refuse_missing(folder: Path) -> None:
    """Raise :class:`NothingToResumeError` if ``folder`` isn't there."""
    if folder.is_dir():
        return
    # Folders only; the command line's logs lie beside them.
    found = folder.parent.iterdir() if folder.parent.is_dir() else ()
    known = sorted(path.name for path in found if path.is_dir())
    shown = ", ".join(known[-20:]) or "none"
    raise NothingToResumeError(
        f"{NOTHING_TO_RESUME} no experiment {folder.name!r} in {folder.parent}. Those that are "
        f"there: {shown}. Start it without resume=true"
    )


def check_settings(saved: Mapping[str, Any], settings: Settings) -> None:
    """Refuse settings that would make another experiment of it.

    Parameters
    ----------
    saved : Mapping[str, Any]
        The settings that the experiment was started with, nested, from ``settings.json``.
    settings : Settings
        What is asked for now.

    Raises
    ------
    ResumeError
        Names every setting that differs and may not.
    """
    then, now = flat(saved), flat(settings.model_dump(by_alias=True))
    for key in sorted(then.keys() ^ now.keys()):
        log.warning(
            "setting %s is %s: the experiment was started with another version of Moonflower",
            key,
            "new" if key in now else "gone",
        )
    freed = settings.resume_changes.split(",")
    changed = [
        f"  {key}: started with {then[key]!r}, now {now[key]!r}"
        for key in now
        if key in then
        and then[key] != now[key]
        and key not in freed
        and not _may_change(key, then[key], now[key])
    ]
    if changed:
        raise ResumeError(
            f"experiment {settings.experiment!r} was started with other settings:\n"
            + "\n".join(changed)
            + "\nGive them as they were, or start another experiment. num-rounds may grow; free "
            f"to change are {', '.join(sorted(FREE_TO_CHANGE - {'resume', 'resume-changes'}))}; "
            "learning rates and weights of terms are where resume-changes names them"
        )


def _may_change(key: str, then: Any, now: Any) -> bool:
    return key in FREE_TO_CHANGE or (key == "num-rounds" and now > then)

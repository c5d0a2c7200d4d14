"""``settings.json``: with what an experiment was started, and when it was resumed."""

from __future__ import annotations

import importlib.metadata
import logging
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.config import Settings, flat
from common.files import DamagedFileError, read_json, write_json
from common.logs import NAME
from common.tasks import build_task
from server_app.clients.query import Client, are_shares
from server_app.errors import ResumeError
from server_app.experiment.layout import SETTINGS_FILE

log = logging.getLogger(NAME)


def write_settings(
    folder: Path, settings: Settings, experiment_id: str, clients: Iterable[Client]
) -> None:
    """Write the file of an experiment that begins.

    Raises
    ------
    OSError
        The disk is full, read-only or failing.
    """
    facts = {
        "experiment": folder.name,
        "id": experiment_id,
        "started": _now(),
        "settings": settings.model_dump(by_alias=True),
        "headline": _headline(settings),
        "versions": versions(),
        "clients": [_describe(client) for client in clients],
    }
    write_json(folder / SETTINGS_FILE, facts)


def note_resumption(
    folder: Path, settings: Settings, experiment_id: str, clients: Iterable[Client]
) -> None:
    """Add to the file that the experiment goes on, when, with which settings and versions.

    Raises
    ------
    OSError
        The disk is full, read-only or failing.
    ResumeError
        The file is damaged, or clients have other shares of the data set than before.
    """
    if not (folder / SETTINGS_FILE).exists():
        write_settings(folder, settings, experiment_id, clients)
        return
    facts = read_settings(folder)
    then = {str(each["name"]): each for each in facts.get("clients", [])}
    here = list(clients)
    now = {client.name: _describe(client) for client in here}
    _compare(then, now, own_data=settings.data.is_site_data and not are_shares(here))
    wanted = settings.model_dump(by_alias=True)
    resumed = {
        "time": _now(),
        "versions": versions(),
        "changed": _changed(facts["settings"], wanted),
    }
    facts |= {
        "id": experiment_id,
        "settings": wanted,
        "headline": _headline(settings),
        "clients": list((then | now).values()),
        "resumed": [*facts.get("resumed", []), resumed],
    }
    write_json(folder / SETTINGS_FILE, facts)


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the content of an experiment's file.

    Raises
    ------
    ResumeError
        It is missing or damaged.
    """
    path = folder / SETTINGS_FILE
    try:
        saved = read_json(path)
        if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
            raise DamagedFileError(f"{path} is damaged: it holds no settings")
    except (FileNotFoundError, DamagedFileError) as error:
        raise ResumeError(
            f"experiment {folder.name!r} can't be resumed, since nothing says which settings it "
            f"was started with: {error}. Put a copy of {path.name} back, or move the folder away "
            "and start anew"
        ) from error
    return saved


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


def warn_of_versions(then: Mapping[str, str]) -> None:
    """Warn if a checkpoint was computed with other versions than these."""
    now = versions()
    changed = [
        f"{name} {then[name]} -> {now[name]}"
        for name in now
        if then.get(name, now[name]) != now[name]
    ]
    if changed:
        log.warning(
            "the experiment goes on with other versions, so results may differ in their last "
            "bits: %s",
            ", ".join(changed),
        )


def _compare(
    then: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]], *, own_data: bool
) -> None:
    """Refuse another division of a data set; warn of other data of a site, and of who is away."""
    away = sorted(then.keys() - now.keys())
    if away:
        log.warning(
            "the experiment goes on without %s, so results differ from those of a run that was "
            "never interrupted, unless they come back before they are needed",
            ", ".join(away),
        )
    changed = [
        f"  {name}: {sum(then[name]['examples-per-label'])} examples then, "
        f"{sum(now[name]['examples-per-label'])} now"
        for name in sorted(then.keys() & now.keys())
        if then[name]["examples-per-label"] != now[name]["examples-per-label"]
    ]
    if not changed:
        return
    listed = "clients have other examples per label than before:\n" + "\n".join(changed)
    if own_data:
        log.warning("%s", listed)
        return
    raise ResumeError(
        f"{listed}\nTheir shares come from the data set, the seed and the number of partitions: "
        "resume with as many simulated clients (or num-partitions) and the same data as before, "
        "or start another experiment"
    )


def _changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting that differs, with both values; one that is new has None before."""
    before, after = flat(then), flat(now)
    return {
        key: {"then": before.get(key), "now": value}
        for key, value in after.items()
        if key not in before or before[key] != value
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _headline(settings: Settings) -> dict[str, Any]:
    headline = build_task(settings).headline
    return {"name": headline.name, "more-is-better": headline.more_is_better}


def _describe(client: Client) -> dict[str, Any]:
    return {
        "name": client.name,
        "examples-per-label": list(client.examples_per_label),
        "partition": client.partition,
        "device": client.device,
        "versions": client.versions,
    }

"""From presets and options to a checked run config."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.config import Settings, SettingsError, flat, parse_settings
from scripts.moonflower.repository import PRESETS, default_run_config
from server_app.experiment.resume import experiment_name

DEFAULT_CLIENTS = 10
MIN_CLIENTS = "server.min-clients"

# All clients are there at once, but they answer only when Ray and its actors have started.
SIMULATION = {"server.start-timeout": 300.0}

# What `flwr run -c` accepts: space-separated pairs, values perhaps in quotes.
_PAIR = re.compile(r"\s*([^\s=]+)\s*=\s*('[^']*'|\"[^\"]*\"|\S+)")


@dataclass(frozen=True)
class Plan:
    """One simulation, checked.

    Attributes
    ----------
    overrides : dict[str, Any]
        Flat run config that differs from pyproject.toml's, for ``flwr run -c``.
    settings : Settings
        Defaults and overrides together.
    clients : int
        How many are simulated.
    """

    overrides: dict[str, Any]
    settings: Settings
    clients: int


def make_plan(
    preset: str | None,
    run_config: Iterable[str],
    options: dict[str, Any],
    clients: int | None,
) -> Plan:
    """Merge a preset, ``--run-config`` and options (the last one wins), and check the result.

    Parameters
    ----------
    preset : str or None
        A name in ``scripts/presets``, or a path to a TOML file.
    run_config : Iterable[str]
        ``key=value`` pairs, or paths to TOML files.
    options : dict[str, Any]
        Dotted setting to value, ``None`` where the option was not given.
    clients : int or None
        ``None``: what the preset (or ``server.min-clients``) asks for, else 10.

    Raises
    ------
    SettingsError
        Lists every problem of the whole run config.
    """
    chosen = {} if preset is None else read_preset(preset)
    explicit: dict[str, Any] = {}
    for text in run_config:
        explicit |= read_overrides(text)
    explicit |= {key: value for key, value in options.items() if value is not None}
    overrides = SIMULATION | chosen | explicit

    given = clients is not None
    clients = clients or _clients_of(overrides.get(MIN_CLIENTS))
    if MIN_CLIENTS not in explicit and (given or MIN_CLIENTS not in chosen):
        # A simulation has all of its clients from the start, so wait for all of them.
        overrides[MIN_CLIENTS] = clients

    settings = parse_settings(default_run_config() | overrides)
    if settings.server.min_clients > clients:
        raise SettingsError(
            f"server.min-clients = {settings.server.min_clients}, but --clients is {clients}: the "
            "run would wait for clients that never come. Leave server.min-clients out, or ask for "
            "more --clients."
        )
    if settings.server.min_replies > clients:
        raise SettingsError(
            f"server.min-replies = {settings.server.min_replies}, but there are {clients} clients: "
            "every round would fail. Lower server.min-replies, or ask for more --clients."
        )
    if not settings.experiment:
        # The name is made here as well, so that the folder of the results is known.
        overrides["experiment"] = experiment_name(settings)
        settings = parse_settings(default_run_config() | overrides)
    return Plan(overrides, settings, clients)


def make_overrides(
    preset: str | None, run_config: Iterable[str], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the checked overrides of a run on a SuperLink, with a name for the experiment.

    Parameters and errors are those of :func:`make_plan`, but nothing is made of the number of
    clients: they are who connects.
    """
    overrides = {} if preset is None else read_preset(preset)
    for text in run_config:
        overrides |= read_overrides(text)
    overrides |= {key: value for key, value in options.items() if value is not None}
    settings = parse_settings(default_run_config() | overrides)
    return {**overrides, "experiment": experiment_name(settings)}


def _clients_of(wanted: object) -> int:
    """Return the number of clients that ``server.min-clients`` stands for; its default is 2."""
    return wanted if isinstance(wanted, int) and wanted > 2 else DEFAULT_CLIENTS


def read_preset(name: str) -> dict[str, Any]:
    """Return a preset's settings, flat.

    Raises
    ------
    SettingsError
        If there is none of that name, or if it isn't TOML.
    """
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in PRESETS.glob("*.toml")))
        raise SettingsError(
            f"preset {name!r}: there is no file {path}. Presets are {known}; a path to a TOML "
            "file of your own works too."
        )
    return _read_toml(path)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} can't be read as TOML: {error}") from None


def read_overrides(text: str) -> dict[str, Any]:
    """Return the settings in ``text``: ``key=value`` pairs, or the path of a TOML file.

    Values are TOML; what isn't TOML is taken as a string, so that the quotes in
    ``data.source="mnist"`` may be left out.

    Raises
    ------
    SettingsError
        If ``text`` is something else.
    """
    if text.endswith(".toml") and "=" not in text:
        return _read_toml(Path(text))
    pairs = _PAIR.findall(text)
    if not pairs or _PAIR.sub("", text).strip():
        raise SettingsError(
            f"--run-config {text!r} can't be read: it takes key=value, as moon.mu=5 or "
            "data.source=mnist, or the path of a TOML file. Repeat it for more, or separate pairs "
            "by spaces."
        )
    return flat({key: _value(value) for key, value in pairs})


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text

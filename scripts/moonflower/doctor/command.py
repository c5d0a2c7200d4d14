"""``moonflower doctor server|node``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scripts.moonflower.options import Preset, RunConfig

if TYPE_CHECKING:
    from common.config import Settings
    from scripts.moonflower.doctor.bundle import Bundle, Role
    from scripts.moonflower.doctor.findings import Subject

app = typer.Typer(
    help="Say what would go wrong on this machine, before anything starts.", no_args_is_help=True
)

FAILED, BAD_INPUT = 1, 2

_Bundle = Annotated[
    Path,
    typer.Option(
        "--bundle",
        envvar="MOONFLOWER_BUNDLE",
        help="This machine's folder of what `moonflower provision` wrote.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


@app.command()
def server(bundle: _Bundle, json: _Json = False) -> None:
    """Look at a server: versions, certificates, ports, keys, folders, device."""
    _report("server", bundle, json, _server_subjects)


@app.command()
def node(
    bundle: _Bundle,
    run_config: RunConfig = None,
    preset: Preset = None,
    json: _Json = False,
) -> None:
    """Look at a node: versions, key, data, folders, device, the way to the server."""

    def subjects(opened: Bundle) -> list[Subject]:
        return _node_subjects(opened, _settings(preset, run_config))

    _report("node", bundle, json, subjects)


def _report(
    role: Role, folder: Path, as_json: bool, subjects: Callable[[Bundle], Iterable[Subject]]
) -> None:
    from rich.console import Console

    from common.config import SettingsError
    from scripts.moonflower.doctor import findings
    from scripts.moonflower.doctor.bundle import Bundle

    try:
        bundle = Bundle.open(folder, role)
        # As the start script does it: the app's own code then finds folders, name and device.
        os.environ.update(bundle.settings)
        chosen = subjects(bundle)
    except (SettingsError, OSError) as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    found = list(findings.examine(chosen))
    if as_json:
        typer.echo(findings.as_json(found))
    else:
        # A log file has no width of its own, and narrow columns would break words.
        Console(width=None if sys.stdout.isatty() else 160).print(findings.as_table(found))
    raise typer.Exit(FAILED if findings.has_failed(found) else 0)


def _settings(preset: str | None, run_config: list[str] | None) -> Settings | None:
    """Return the settings of the run to come; ``None`` where nothing was said of it."""
    from common.config import parse_settings
    from scripts.moonflower.repository import default_run_config
    from scripts.moonflower.run_config import make_overrides

    if preset is None and not run_config:
        return None
    return parse_settings(default_run_config() | make_overrides(preset, run_config or [], {}))


def _server_subjects(bundle: Bundle) -> list[Subject]:
    from common.node import Folders
    from scripts.moonflower.deployment.release import versions_here
    from scripts.moonflower.doctor import certificates, disk, keys, ports, versions
    from scripts.moonflower.doctor.bundle import DATABASE, check_bundle
    from scripts.moonflower.doctor.device import check_device

    own, wanted = versions_here(), versions.wanted_versions()
    output = Folders.find().output
    subjects: list[Subject] = [
        ("versions", lambda: versions.check_versions(bundle, own, wanted)),
        ("bundle", lambda: check_bundle(bundle)),
        ("CA certificate", lambda: certificates.check_ca(bundle)),
        ("server certificate", lambda: certificates.check_server_certificate(bundle)),
        ("nginx", ports.check_nginx),
        ("ports", lambda: ports.check_ports(bundle)),
        ("node keys", lambda: keys.check_public_keys(bundle)),
        ("keys at the fence", lambda: keys.check_known_keys(bundle)),
        ("registered keys", lambda: keys.check_registrations(bundle)),
        (
            "output folder",
            lambda: disk.check_folder("output folder", output, "MOONFLOWER_OUTPUT_DIR"),
        ),
        ("device", check_device),
    ]
    if bundle.settings.get(DATABASE):
        place = Path(bundle.settings[DATABASE]).parent
        what = "folder of the database"
        subjects.insert(-1, (what, lambda: disk.check_folder(what, place, DATABASE)))
    return subjects


def _node_subjects(bundle: Bundle, settings: Settings | None) -> list[Subject]:
    from common.node import Folders
    from scripts.moonflower.deployment.release import versions_here
    from scripts.moonflower.doctor import (
        certificates,
        connection,
        disk,
        keys,
        model,
        site_data,
        versions,
    )
    from scripts.moonflower.doctor.bundle import check_bundle, check_client_name
    from scripts.moonflower.doctor.device import check_device

    own, wanted = versions_here(), versions.wanted_versions()
    folders = Folders.find()
    state = "state folder", folders.state, "MOONFLOWER_STATE_DIR"
    return [
        ("versions", lambda: versions.check_versions(bundle, own, wanted)),
        ("bundle", lambda: check_bundle(bundle)),
        ("client name", lambda: check_client_name(bundle)),
        ("one node of this name", lambda: connection.check_name_unique(bundle)),
        ("CA certificate", lambda: certificates.check_ca(bundle)),
        ("node key", lambda: keys.check_node_key(bundle)),
        ("data folder", lambda: site_data.check_folder_readable(folders.data)),
        ("examples", lambda: site_data.check_examples(settings, folders)),
        ("model", lambda: model.check_model(settings)),
        ("state folder", lambda: disk.check_folder(*state)),
        ("device", check_device),
        ("connection", lambda: connection.check_connection(bundle)),
    ]

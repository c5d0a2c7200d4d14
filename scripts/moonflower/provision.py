"""``moonflower provision`` and ``moonflower nodes``: who belongs to a federation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from scripts.moonflower.deployment.provisioning import Provisioning

nodes_app = typer.Typer(
    help="The nodes that a running SuperLink admits; on the server.", no_args_is_help=True
)

BAD_SETTINGS = 2
FAILED = 1


def say(text: str) -> None:
    """Print what was done, or is going on."""
    typer.echo(f"moonflower: {text}", err=True)


def fail(error: Exception, code: int = BAD_SETTINGS) -> typer.Exit:
    """Say what is wrong and return the exit for it."""
    say(str(error))
    return typer.Exit(code)


def provision(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The federation's folder; a new or an earlier one."),
    ] = Path("federation"),
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="NAME_OR_ADDRESS",
            help="How nodes reach the server: DNS name or IP address. May be repeated; the first "
            "one goes into the nodes' settings, all go into the certificate.",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="A node to add. May be repeated."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Published port of the fence. Default: 9443.")
    ] = None,
    superlink_port: Annotated[
        int | None,
        typer.Option(help="Port of the SuperLink on the server's loopback. Default: 8000."),
    ] = None,
    fence_address: Annotated[
        str | None,
        typer.Option(
            help="Where the fence listens. Default: all of IPv4 (0.0.0.0), and of IPv6 (::) if a "
            "server is named by such an address."
        ),
    ] = None,
    rotate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A node that gets a new key, or 'server' for a new certificate. May be repeated.",
        ),
    ] = None,
    revoke: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A node that may not connect any more. May be repeated."),
    ] = None,
    ca_days: Annotated[
        int | None, typer.Option(help="How long a new CA is valid. Default: 3650 days.")
    ] = None,
    server_days: Annotated[
        int | None, typer.Option(help="How long a server certificate is valid. Default: 825 days.")
    ] = None,
    bundles: Annotated[
        str | None,
        typer.Option(help="Where bundles will be on their machines. Default: /etc/moonflower."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Below which folder machines keep things. Default: /var/lib/moonflower."),
    ] = None,
    app_dir: Annotated[
        str | None,
        typer.Option(
            "--app", help="Where Moonflower is on those machines. Default: as on this one."
        ),
    ] = None,
) -> None:
    """Make a federation's CA, certificate and keys, and one bundle for each party.

    What was asked for is kept in FOLDER/federation.toml. Run it again, with or without options, to
    add nodes or to renew a server certificate that has to be; keys that exist are kept.

    FOLDER/ca stays with you: whoever has ca.key can play the server. FOLDER/server goes to the
    server, FOLDER/nodes/NAME to that node; a node's bundle may be removed here afterwards.

    The keys in FOLDER/server/nodes are those that the server admits. The SuperLink reads them when
    it starts; while it runs, copy the folder there and run `moonflower nodes sync`. If it runs on
    this machine, --rotate NODE and --revoke do so at once.
    """
    from common.node import expanded
    from scripts.moonflower.deployment.description import SERVER, describe
    from scripts.moonflower.deployment.errors import DeploymentError
    from scripts.moonflower.deployment.provisioning import Provisioning, strangers

    changes = {
        "servers": server or [],
        "nodes": node or [],
        "fence_port": port,
        "superlink_port": superlink_port,
        "fence_address": fence_address,
        "ca_days": ca_days,
        "server_days": server_days,
        "bundles": bundles,
        "state": state,
        "app": app_dir,
    }
    folder = expanded(str(output))
    work = Provisioning(folder, say)
    try:
        description = work.run(describe(folder, changes), rotate or [], revoke or [])
    except (DeploymentError, OSError) as error:
        raise fail(error) from None
    for name in strangers(folder, description):
        say(f"node {name} is not in federation.toml but may connect; --revoke {name} ends that")
    if not work.changed:
        say(f"{folder} is as described; nothing was changed")
    else:
        say(f"hand out, from {folder}: {', '.join(sorted(work.changed))}")
    _say_how(work)
    if {*(rotate or []), *(revoke or [])} - {SERVER}:
        _apply(work.server)


def _say_how(work: Provisioning) -> None:
    """Say what else has to be done where a bundle that was changed is in use."""
    changed = {party: files for party, files in work.changed.items() if party not in work.made}
    # Keys are read while everything runs, by `moonflower nodes sync`.
    if any("/" not in name for name in changed.get("server", [])):
        say(
            "that takes effect when the folder server is on the server, and SuperLink and fence "
            "are started again there"
        )
    if any(party != "server" for party in changed):
        say("a node takes it up when its SuperNode is started again")
    if any(name.endswith(".service") for files in changed.values() for name in files):
        say("systemd units are copied to /etc/systemd/system again, then: systemctl daemon-reload")


def _apply(bundle: Path) -> None:
    """Tell a SuperLink of this federation on this machine, if there is one."""
    from scripts.moonflower.deployment.errors import DeploymentError
    from scripts.moonflower.deployment.superlink import ServerSettings

    try:
        settings = ServerSettings.read(bundle, os.environ)
        if not settings.connection.answers():
            say(
                "no SuperLink of this federation runs on this machine: it takes effect on the "
                "server when you copy the folder server there and start the SuperLink again or run "
                "moonflower nodes sync"
            )
            return
        count = settings.synchronise(say)
    except DeploymentError as error:
        say(f"the running SuperLink could not be told: {error}")
        raise typer.Exit(FAILED) from None
    say(f"the SuperLink on this machine was told; it admits {count} nodes")


Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", envvar="MOONFLOWER_BUNDLE", help="The folder that moonflower provision made."
    ),
]


@nodes_app.command("sync")
def nodes_sync(
    bundle: Bundle = None,
    unregister_many: Annotated[
        bool,
        typer.Option(
            "--unregister-many",
            help="Let more than one node go whose key nobody has revoked. Final: each needs a new "
            "key to come back.",
        ),
    ] = False,
) -> None:
    """Let the running SuperLink and its fence admit the nodes of the bundle, and no others."""
    from scripts.moonflower.deployment.errors import DeploymentError
    from scripts.moonflower.deployment.superlink import ServerSettings

    try:
        settings = ServerSettings.read(bundle.absolute() if bundle else None, os.environ)
        if not settings.connection.answers():
            raise DeploymentError(
                f"no SuperLink of this federation answers on 127.0.0.1:{settings.port}: is it "
                "started? It reads the keys when it starts"
            )
        count = settings.synchronise(say, unregister_many=unregister_many)
    except DeploymentError as error:
        raise fail(error, FAILED) from None
    say(f"{count} nodes are admitted")

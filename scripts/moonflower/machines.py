"""``moonflower superlink``, ``supernode`` and ``fence``: what runs on real machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from scripts.moonflower.provision import Bundle, fail, say

Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Laboratories only: no TLS, no keys. Warns on every start."),
]


def superlink(bundle: Bundle = None, insecure: Insecure = False) -> None:
    """Run the server's SuperLink with the settings of its bundle, and keep it alive.

    It listens on 127.0.0.1 only; nodes reach it through the fence. After each start it admits the
    nodes whose keys are in the bundle and unregisters all others.
    """
    from scripts.moonflower.deployment.errors import DeploymentError
    from scripts.moonflower.deployment.superlink import ServerSettings, run_superlink
    from scripts.moonflower.deployment.supervision import BAD_CONFIGURATION

    try:
        settings = ServerSettings.read(_begin(bundle), os.environ, insecure=insecure)
        raise typer.Exit(run_superlink(settings, say))
    except DeploymentError as error:
        raise fail(error, BAD_CONFIGURATION) from None


def supernode(
    bundle: Bundle = None,
    insecure: Insecure = False,
    superlink: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The server. Default: MOONFLOWER_SUPERLINK."),
    ] = None,
) -> None:
    """Run this machine's SuperNode with the settings of its bundle, and keep it alive.

    A server that is not there is waited for, for ever. A node that the server does not let in, as
    for a minute after a crash, tries again for four minutes (MOONFLOWER_REFUSED_SECONDS). One that
    is offline although its process lives is started again. A certificate or key that is wrong ends
    it, with the reason and exit code 77 (refused) or 78 (can't work).
    """
    from scripts.moonflower.deployment.errors import DeploymentError
    from scripts.moonflower.deployment.supernode import NodeSettings, run_supernode
    from scripts.moonflower.deployment.supervision import BAD_CONFIGURATION

    try:
        settings = NodeSettings.read(
            _begin(bundle), os.environ, insecure=insecure, superlink=superlink
        )
        # The first look at the server goes through the proxy that node.env names, as Flower does.
        os.environ.update(settings.env)
        raise typer.Exit(run_supernode(settings, say))
    except DeploymentError as error:
        raise fail(error, BAD_CONFIGURATION) from None


def fence(bundle: Bundle = None) -> None:
    """Run nginx in front of the SuperLink: it publishes what nodes need, and nothing else."""
    from scripts.moonflower.deployment.errors import DeploymentError
    from scripts.moonflower.deployment.fence import run_fence
    from scripts.moonflower.deployment.supervision import BAD_CONFIGURATION

    try:
        run_fence(_begin(bundle), os.environ, say)
    except DeploymentError as error:
        raise fail(error, BAD_CONFIGURATION) from None


def _begin(bundle: Path | None) -> Path | None:
    """Return the bundle as an absolute path; from now on, files are for this user only."""
    os.umask(0o077)
    return bundle.absolute() if bundle else None

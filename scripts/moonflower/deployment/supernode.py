"""A SuperNode with the settings of its bundle, kept alive."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from common.config import SettingsError, check_name
from scripts.moonflower import flwr
from scripts.moonflower.deployment.environment_file import NODE_FILE, with_environment
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.first_message import AHEAD, BEHIND, parse_address
from scripts.moonflower.deployment.online import watch
from scripts.moonflower.deployment.probe import probe
from scripts.moonflower.deployment.supernode_process import GAVE_UP, PROGRAM
from scripts.moonflower.deployment.supervision import (
    NO_PERMISSION,
    Ending,
    Patience,
    Supervisor,
    Verdict,
)

INSECURE = (
    "WARNING: insecure mode. Nothing is encrypted, nobody is checked, and whoever is on the way "
    "can read and change models. For laboratories only."
)

_EXIT_CODE = re.compile(r"Exit Code: (\d+)")
_FLOWER_ERROR = re.compile(r"\[code: (\d+)\] ?(.*)")
_GAVE_UP = re.compile(re.escape(GAVE_UP) + "(.*)")
_NOT_ACTIVATED = "2004"
# Flower's exit codes after which the same start ends the same way.
_PERMANENT = {302, 303, 304, 600, 602, 603, 604, 605, 606}


@dataclass(frozen=True)
class NodeSettings:
    """What a SuperNode is started with.

    Attributes
    ----------
    superlink : str
        ``host:port`` of the fence.
    name : str
        Of this client.
    state : Path
        What it keeps.
    key, ca : Path or None
        None in insecure mode only.
    env : Mapping[str, str]
        The environment, with what ``node.env`` says.
    """

    superlink: str
    name: str
    state: Path
    key: Path | None
    ca: Path | None
    env: Mapping[str, str]

    @classmethod
    def read(
        cls, bundle: Path | None, env: Mapping[str, str], *, insecure: bool, superlink: str | None
    ) -> NodeSettings:
        """Read a bundle; the environment wins over ``node.env``.

        Raises
        ------
        DeploymentError
            A file or a setting is missing or can't be used.
        """
        if bundle is None and not insecure:
            raise DeploymentError(
                "no bundle: give --bundle with the folder that moonflower provision made for this "
                "node (or set MOONFLOWER_BUNDLE)"
            )
        if bundle is not None:
            env = with_environment(env, bundle / NODE_FILE)
            env["MOONFLOWER_BUNDLE"] = str(bundle)
        address = superlink or env.get("MOONFLOWER_SUPERLINK", "")
        parse_address(address)
        try:
            name = check_name(env.get("MOONFLOWER_CLIENT_NAME", ""), "MOONFLOWER_CLIENT_NAME")
        except SettingsError as error:
            raise DeploymentError(str(error)) from None
        state = env.get("MOONFLOWER_STATE_DIR")
        if not state:
            raise DeploymentError(
                "MOONFLOWER_STATE_DIR is not set: name the folder in which this node keeps its "
                "state, in node.env or in the environment"
            )
        key, ca = (None, None) if insecure else _secrets(bundle)
        return cls(address, name, Path(state).absolute(), key, ca, env)

    @property
    def home(self) -> Path:
        """Flower's home: no two SuperNodes share one."""
        return self.state / "flwr"

    def command(self) -> Sequence[str]:
        """Return the command line; the port of its own interface is a free one of loopback."""
        command = [sys.executable, str(PROGRAM), "--superlink", self.superlink]
        command += ["--host", "127.0.0.1", "--port", str(_free_port())]
        command += ["--node-config", f"client-name={json.dumps(self.name)}"]
        if self.ca and self.key:
            command += ["--root-certificates", str(self.ca)]
            command += ["--auth-supernode-private-key", str(self.key)]
        else:
            command.append("--insecure")
        return command


def run_supernode(
    settings: NodeSettings, say: Callable[[str], None], patience: Patience | None = None
) -> int:
    """Run the SuperNode until it is told to end, and return the exit code.

    Raises
    ------
    DeploymentError
        The state folder can't be written, or a setting is no number.
    """
    patience = patience or _patience(settings.env)
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DeploymentError(
            f"the state folder {settings.state} can't be made: {error}. Set MOONFLOWER_STATE_DIR "
            "to a folder of the user that runs the SuperNode"
        ) from None
    if settings.ca is None:
        say(INSECURE)
    say(f"node {settings.name}, server {settings.superlink}, state in {settings.state}")
    return Supervisor(
        settings.command,
        flwr.environment(settings.env, settings.home),
        judge,
        say,
        before=lambda: probe(settings.superlink, settings.ca),
        after=lambda ended: watch(settings.home, settings.superlink, settings.ca, ended),
        patience=patience,
    ).run()


def judge(code: int, printed: str) -> Ending:
    """Return what the end of a ``flower-supernode`` means.

    Parameters
    ----------
    code : int
        Of the process; negative: the signal that ended it.
    printed : str
        Its last lines. Only there does Flower say why: its process exits with 1 for every error.
    """
    codes = _EXIT_CODE.findall(printed)
    number = int(codes[-1]) if codes else 0
    detail = _detail(printed)
    if number == 305 and f"[code: {_NOT_ACTIVATED}]" in printed:
        return Ending(
            Verdict.REFUSED,
            "the server does not let this node in (Flower's code 2004). Either its former self "
            "still counts as online, which passes within about a minute; or another machine uses "
            "this key now; or the key is not registered or was revoked there",
            NO_PERMISSION,
        )
    if number == 305 and _FLOWER_ERROR.search(printed):
        return Ending(Verdict.STOP, f"the server refused this node: {detail}", NO_PERMISSION)
    if number == 305 and "400 Bad Request" in printed:
        return Ending(
            Verdict.STOP,
            "the server answered 400: it speaks TLS, and this node was started with --insecure",
        )
    if number in _PERMANENT:
        return Ending(Verdict.STOP, f"flower-supernode can't start: {detail}")
    return Ending(Verdict.RESTART, _why_ended(code, printed, number, detail))


def _why_ended(code: int, printed: str, number: int, detail: str) -> str:
    """Say why a ``flower-supernode`` that is to be started again has ended."""
    gave_up = _GAVE_UP.findall(printed)
    if gave_up:
        return f"the node was no longer online: {gave_up[-1]}"
    if code == 0:
        return (
            "flower-supernode ended by itself: the server does not accept its signature (is the "
            f"key revoked, or do the clocks differ, this one's more than {AHEAD:.0f} s ahead or "
            f"{BEHIND:.0f} s behind?), or somebody stopped it"
        )
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {number or code}"
    return f"flower-supernode {how}" + (f": {detail}" if detail else "")


def _detail(printed: str) -> str:
    """Return what stands behind Flower's last exit code, on one line."""
    _, found, text = printed.rpartition("Exit Code: ")
    if not found:
        return ""
    lines = text.partition("For more information")[0].splitlines()[1:]
    return " ".join(line.strip() for line in lines if line.strip())


def _patience(env: Mapping[str, str]) -> Patience:
    chosen = env.get("MOONFLOWER_REFUSED_SECONDS")
    if not chosen:
        return Patience()
    if not chosen.isdecimal():
        raise DeploymentError(
            f"MOONFLOWER_REFUSED_SECONDS is {chosen!r}: give whole seconds, or nothing for "
            f"{Patience().refusals:.0f}"
        )
    return Patience(refusals=float(chosen))


def _secrets(bundle: Path | None) -> tuple[Path, Path]:
    """Return the bundle's key and CA certificate after a look into them."""
    folder = bundle or Path()
    key, ca = folder / "node.key", folder / "ca.crt"
    for file, what in ((key, "this node's private key"), (ca, "the federation's CA certificate")):
        if not file.is_file():
            raise DeploymentError(
                f"{what}, {file}, is missing: copy the whole bundle that moonflower provision made "
                "for this node"
            )
    try:
        serialization.load_ssh_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise DeploymentError(
            f"this node's private key, {key}, can't be used: {error}. Copy the bundle again, or "
            "make a new key with moonflower provision --rotate"
        ) from None
    if key.stat().st_mode & 0o077:
        raise DeploymentError(f"{key} can be read by other users: run chmod 600 {key}")
    return key, ca


def _free_port() -> int:
    with closing(socket.socket()) as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port: int = probe_socket.getsockname()[1]
        return port

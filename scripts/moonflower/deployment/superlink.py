"""A SuperLink with the settings of its bundle, kept alive, that admits the bundle's nodes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common.node_keys import KEYS_VARIABLE, NUMBERS_VARIABLE
from scripts.moonflower import flwr
from scripts.moonflower.deployment.authority import (
    federation_id,
    read_certificate,
    read_private_key,
)
from scripts.moonflower.deployment.environment_file import SERVER_FILE, with_environment
from scripts.moonflower.deployment.errors import (
    DeploymentError,
    SuperLinkError,
    UnregistersManyError,
)
from scripts.moonflower.deployment.fence import fence_folder
from scripts.moonflower.deployment.fence_keys import reload_fence, renew_known_keys
from scripts.moonflower.deployment.node_registry import Registry, registrations_file
from scripts.moonflower.deployment.provisioning import ADMITTED, REVOKED
from scripts.moonflower.deployment.supernode import INSECURE
from scripts.moonflower.deployment.supernode import judge as judge_supernode
from scripts.moonflower.deployment.supervision import Ending, Patience, Supervisor, Verdict
from scripts.moonflower.loopback_superlink import LoopbackSuperLink

LOOPBACK = "127.0.0.1"
_START_SECONDS = 600.0
_AGAIN_SECONDS = 10.0
_PERMANENT = ("Exit Code: 10", "Exit Code: 60")


@dataclass(frozen=True)
class ServerSettings:
    """What a SuperLink is started with.

    Attributes
    ----------
    bundle : Path or None
        None in insecure mode only.
    port : int
    database : Path
    env : Mapping[str, str]
        The environment, with what ``server.env`` says.
    insecure : bool
    """

    bundle: Path | None
    port: int
    database: Path
    env: Mapping[str, str]
    insecure: bool = False

    @classmethod
    def read(
        cls, bundle: Path | None, env: Mapping[str, str], *, insecure: bool = False
    ) -> ServerSettings:
        """Read a bundle; the environment wins over ``server.env``.

        Raises
        ------
        DeploymentError
            A file or a setting is missing or can't be used.
        """
        if bundle is None and not insecure:
            raise DeploymentError(
                "no bundle: give --bundle with the folder server that moonflower provision made "
                "(or set MOONFLOWER_BUNDLE)"
            )
        if bundle is not None:
            env = with_environment(env, bundle / SERVER_FILE)
            env["MOONFLOWER_BUNDLE"] = str(bundle)
        port = env.get("MOONFLOWER_SUPERLINK_PORT") or "8000"
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise DeploymentError(f"MOONFLOWER_SUPERLINK_PORT is {port!r}: give 1 to 65535")
        database = env.get("MOONFLOWER_DATABASE")
        if not database:
            raise DeploymentError(
                "MOONFLOWER_DATABASE is not set: name the SuperLink's database file, in server.env "
                "or in the environment"
            )
        return cls(bundle, int(port), Path(database).absolute(), env, insecure)

    @property
    def address(self) -> str:
        """Where it listens: on loopback, unless it has a network of its own as in a container."""
        return self.env.get("MOONFLOWER_SUPERLINK_ADDRESS") or LOOPBACK

    @property
    def home(self) -> Path:
        """Flower's home; ``flwr`` with it reaches this SuperLink."""
        return self.database.parent / "flwr"

    @property
    def connection(self) -> LoopbackSuperLink:
        """How ``flwr`` reaches it."""
        ca = None if self.insecure or self.bundle is None else self.bundle / "ca.crt"
        return LoopbackSuperLink(self.port, ca, self.home)

    def command(self) -> Sequence[str]:
        """Return the command line."""
        command = ["flower-superlink", "--host", self.address, "--port", str(self.port)]
        command += ["--database", str(self.database), "--disable-runtime-dependency-installation"]
        if self.insecure or self.bundle is None:
            return [*command, "--insecure"]
        for option, file in (("cert", "server.crt"), ("key", "server.key"), ("ca-cert", "ca.crt")):
            command += [f"--ssl-{option}file", str(self.bundle / file)]
        return [*command, "--enable-supernode-auth"]

    def environment(self) -> dict[str, str]:
        """Return the environment of the SuperLink, and so of every ServerApp: who has which key.

        Without node keys it says nothing of them, whatever this process was started with.
        """
        env = flwr.environment(self.env, self.home)
        for name in (KEYS_VARIABLE, NUMBERS_VARIABLE):
            env.pop(name, None)
        if self.insecure or self.bundle is None:
            return env
        keys, numbers = self.bundle.absolute() / ADMITTED, registrations_file(self.database)
        return {**env, KEYS_VARIABLE: str(keys), NUMBERS_VARIABLE: str(numbers)}

    def synchronise(self, say: Callable[[str], None], *, unregister_many: bool = False) -> int:
        """Let the running SuperLink and the fence admit the bundle's nodes only.

        Parameters
        ----------
        say : Callable[[str], None]
            Takes what was done.
        unregister_many : bool
            Whether more than one node may go whose key was not revoked.

        Returns
        -------
        int
            How many nodes are admitted.

        Raises
        ------
        DeploymentError
            See :meth:`Registry.synchronise`.
        """
        self.connection.write()
        bundle = self.bundle or Path()
        keys, revoked = bundle / ADMITTED, bundle / REVOKED
        count = Registry(
            keys,
            revoked,
            registrations_file(self.database),
            federation_id(bundle / "ca.crt"),
            self.connection,
            say,
            unregister_many,
        ).synchronise()
        # After that: keys which the registry refused to exchange are not exchanged here either.
        renew_known_keys(keys, revoked, say)
        if reload_fence(fence_folder(self.env)):
            say("the fence on this machine was told")
        return count


def run_superlink(
    settings: ServerSettings, say: Callable[[str], None], patience: Patience | None = None
) -> int:
    """Run the SuperLink until it is told to end, and return the exit code.

    Raises
    ------
    DeploymentError
        The certificate or a folder can't be used.
    """
    if settings.insecure:
        say(INSECURE)
    if settings.address != LOOPBACK:
        say(
            f"it listens on {settings.address}, as MOONFLOWER_SUPERLINK_ADDRESS says: whoever "
            "reaches that port can start code on every node"
        )
    if not settings.insecure:
        _check_certificate(settings.bundle or Path())
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DeploymentError(
            f"the folder {settings.database.parent} can't be used: {error}. Set "
            "MOONFLOWER_DATABASE to a file in a folder of the user that runs the SuperLink"
        ) from None

    return Supervisor(
        settings.command,
        settings.environment(),
        judge,
        say,
        before=lambda: why_not_now(settings),
        after=lambda ended: _accompany(settings, ended, say),
        patience=patience or Patience(),
    ).run()


def why_not_now(settings: ServerSettings) -> Ending | None:
    """Return who is in the place of the SuperLink that is to be started; None: nobody."""
    if settings.connection.answers():
        return Ending(
            Verdict.RESTART,
            f"another SuperLink of this federation answers on 127.0.0.1:{settings.port}",
        )
    try:
        # Of a port that is taken, Flower's process says no more than "exit code 1".
        family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
        socket.create_server((settings.address, settings.port), family=family).close()
    except OSError as error:
        return Ending(
            Verdict.RESTART,
            f"port {settings.port} on {settings.address} can't be used ({error.strerror}): "
            "moonflower doctor server says who has it, another federation's SuperLink perhaps. "
            "moonflower provision --superlink-port changes it",
        )
    return None


def judge(code: int, printed: str) -> Ending:
    """Return what the end of a ``flower-superlink`` means; see ``supernode.judge``."""
    ending = judge_supernode(code, printed)
    permanent = any(number in printed for number in _PERMANENT)
    reason = ending.reason.replace("flower-supernode", "flower-superlink")
    return Ending(Verdict.STOP if permanent else Verdict.RESTART, reason)


def _accompany(
    settings: ServerSettings, ended: threading.Event, say: Callable[[str], None]
) -> Ending | None:
    """Wait until the SuperLink answers, and then let the right nodes in."""
    waited = 0.0
    while not settings.connection.answers():
        if ended.wait(0.5):
            return None
        waited += 0.5
        if waited > _START_SECONDS:
            return Ending(Verdict.RESTART, "the SuperLink did not answer after its start")
    count = 0
    while not settings.insecure:
        try:
            count = settings.synchronise(say)
            break
        except SuperLinkError as error:
            if ended.wait(_AGAIN_SECONDS):
                return None
            say(f"the nodes could not be registered, trying again: {error}")
        except UnregistersManyError as error:
            say(f"warning: the nodes stay as they were. {error}")
            break
        except DeploymentError as error:
            # Without it, a revoked node might be admitted.
            return Ending(Verdict.STOP, f"the nodes could not be registered: {error}")
    say(
        f"ready on 127.0.0.1:{settings.port}, {count} nodes admitted. On this machine: "
        f"FLWR_HOME={settings.home} flwr run . {flwr.CONNECTION}"
    )
    return None


def _check_certificate(bundle: Path) -> None:
    certificate = read_certificate(bundle / "server.crt")
    if certificate.public_key() != read_private_key(bundle / "server.key").public_key():
        raise DeploymentError(
            f"{bundle / 'server.crt'} and server.key do not belong together: copy the whole bundle "
            "again"
        )
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise DeploymentError(
            f"the server's certificate {bundle / 'server.crt'} expired on "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}: run moonflower provision --rotate server "
            "where the CA is, and install the new bundle"
        )
    read_certificate(bundle / "ca.crt")

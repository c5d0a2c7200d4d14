"""The fence: nginx with the bundle's configuration, as any user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from scripts.moonflower.deployment.environment_file import SERVER_FILE, with_environment
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.fence_keys import renew_known_keys
from scripts.moonflower.deployment.provisioning import ADMITTED, REVOKED

_PATHS = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")

INSTALL = (
    "On Debian and Ubuntu: sudo apt-get install nginx-light, and sudo systemctl disable --now "
    "nginx, since only this one is needed"
)


def find_nginx() -> str | None:
    """Return the path of the program, which may be in a folder of root's path only."""
    return shutil.which("nginx") or shutil.which("nginx", path=os.pathsep.join(_PATHS))


def run_fence(bundle: Path | None, env: Mapping[str, str], say: Callable[[str], None]) -> NoReturn:
    """Become nginx. Its folder is ``MOONFLOWER_FENCE_DIR``, else ``fence`` next to the database.

    Raises
    ------
    DeploymentError
        There is no nginx, or a file or folder can't be used.
    """
    if bundle is None:
        raise DeploymentError(
            "no bundle: give --bundle with the folder server that moonflower provision made (or "
            "set MOONFLOWER_BUNDLE)"
        )
    settings = with_environment(env, bundle / SERVER_FILE)
    nginx = find_nginx()
    if nginx is None:
        raise DeploymentError(f"nginx is not installed. {INSTALL}")
    configuration = bundle / "nginx.conf"
    if not configuration.is_file():
        raise DeploymentError(f"{configuration} is missing: copy the whole bundle again")
    renew_known_keys(bundle / ADMITTED, bundle / REVOKED, say)
    folder = fence_folder(settings)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DeploymentError(
            f"the folder {folder} can't be made: {error}. Set MOONFLOWER_FENCE_DIR to one in which "
            "nginx may write"
        ) from None
    address, port = settings.get("MOONFLOWER_FENCE_ADDRESS"), settings.get("MOONFLOWER_FENCE_PORT")
    say(f"publishing /v1/fleet/ and /health on {address}:{port}; everything else is refused")
    os.chdir(folder)
    os.execve(  # noqa: S606 (a path from a list of system folders, and no shell)
        nginx,
        [nginx, "-e", "stderr", "-p", f"{folder}/", "-c", str(configuration)],
        dict(env),
    )


def fence_folder(settings: Mapping[str, str]) -> Path:
    """Return the folder for nginx's pid and temporary files.

    Raises
    ------
    DeploymentError
        The settings name neither it nor the database.
    """
    chosen = settings.get("MOONFLOWER_FENCE_DIR")
    database = settings.get("MOONFLOWER_DATABASE")
    if not chosen and not database:
        raise DeploymentError(
            "set MOONFLOWER_FENCE_DIR to a folder in which nginx may write, in server.env or in "
            "the environment"
        )
    return Path(chosen).absolute() if chosen else Path(str(database)).absolute().parent / "fence"

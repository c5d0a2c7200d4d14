"""``server.env`` and ``node.env``: KEY=value lines, for systemd, compose and the start scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from common.files import write_bytes
from scripts.moonflower.deployment.errors import DeploymentError

SERVER_FILE = "server.env"
NODE_FILE = "node.env"

_KEY = re.compile(r"[A-Z][A-Z0-9_]*")
_OURS = "MOONFLOWER_"


def read_environment(file: Path) -> dict[str, str]:
    """Read KEY=value lines; empty lines and those that begin with ``#`` say nothing.

    Values stand as they are, without quotes, since not all readers take these away.

    Raises
    ------
    DeploymentError
        The file is missing or has another line; the message names it.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DeploymentError(f"the settings {file} can't be read: {error}") from None
    values = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not _KEY.fullmatch(key):
            raise DeploymentError(
                f"{file}, line {number}: {line!r} is not KEY=value with KEY in capital letters"
            )
        if value[:1] in ("'", '"'):
            raise DeploymentError(
                f"{file}, line {number}: {key} has quotes: write the value without them"
            )
        values[key] = value.strip()
    return values


def write_environment(
    file: Path, head: str, derived: Mapping[str, str], machine: Mapping[str, str]
) -> None:
    """Write an environment file; what a person changed or added in it stays.

    Parameters
    ----------
    file : Path
    head : str
        Comment lines, each with its ``#`` and line end.
    derived : Mapping[str, str]
        From the federation's description: these replace what is there.
    machine : Mapping[str, str]
        Of the machine: these are only defaults.
    """
    there = read_environment(file) if file.exists() else {}
    values = {**machine, **there, **derived}
    order = [*derived, *machine, *(key for key in there if key not in {**derived, **machine})]
    text = head + "".join(f"{key}={values[key]}\n" for key in order)
    write_bytes(file, text.encode())


def with_environment(env: Mapping[str, str], file: Path) -> dict[str, str]:
    """Return ``env`` with what ``file`` says; what is set in ``env`` wins.

    A setting of ours that is empty there, as compose passes those that nobody gave, is not set.

    Raises
    ------
    DeploymentError
        The file can't be read.
    """
    given = {key: value for key, value in env.items() if value or not key.startswith(_OURS)}
    return {**read_environment(file), **given}

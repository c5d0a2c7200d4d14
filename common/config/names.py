"""Names that become folders, and the error of settings that can't be used."""

from __future__ import annotations

import re

from common.errors import MoonflowerError

NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What an experiment or a client may be called: it becomes the name of a folder."""

RESERVED_NAME = "prepared"
"""An experiment can't be called so: prepared data have that place in the state folder."""


class SettingsError(MoonflowerError, ValueError):
    """The run config can't be used; the message lists every problem and what is allowed."""

    permanent = True


def check_name(name: str, what: str) -> str:
    """Return ``name`` if it may become a folder, else raise :class:`SettingsError`."""
    if not NAME_PATTERN.fullmatch(name) or set(name) == {"."}:
        raise SettingsError(
            f"{what} {name!r} can't be used as a folder name: allowed are 1 to 64 of A-Z a-z 0-9 "
            f"'.', '_' and '-', and not dots alone. Choose another {what}."
        )
    return name


def is_folder_name(name: str) -> bool:
    """Return whether ``name`` may be a class's folder in a data set."""
    return bool(name) and name == name.strip() and "/" not in name and not name.startswith(".")

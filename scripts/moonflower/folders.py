"""Folders that a person names for results."""

from __future__ import annotations

import tempfile
from pathlib import Path

from common.config import SettingsError
from common.node import expanded


def writable(wanted: Path | str) -> Path:
    """Return the folder as an absolute path, made where it was missing.

    Raises
    ------
    SettingsError
        Nothing can be written there.
    """
    folder = expanded(str(wanted))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SettingsError(
            f"nothing can be written to {folder}: {error}. Choose another folder with --output-dir "
            "(results; --output of reproduce and benchmark) and --state-dir (what clients keep)."
        ) from None
    return folder

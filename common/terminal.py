"""Text for terminals that can't show all of it, as those of old clusters and what cron starts.

Python refuses to print what the terminal's encoding lacks, and ends the program: after hours of
training, because of one ``±`` in the last table.
"""

from __future__ import annotations

import codecs
import io
from typing import TextIO

_INSTEAD = {"±": "+-", "→": "->", "≥": ">=", "≤": "<=", "…": "..."}

_ERRORS = "moonflower"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    shown = "".join(_INSTEAD.get(each, each) for each in unknown)
    return shown.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(_ERRORS, _replace)


def show_what_fits(*streams: TextIO) -> None:
    """Let streams show what they can: ``+-`` for ``±``, and other letters escaped.

    Those that are no files are left alone.
    """
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def fitting(text: str, stream: TextIO) -> str:
    """Return ``text`` as :func:`show_what_fits` would let ``stream`` show it."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, _ERRORS).decode(encoding)

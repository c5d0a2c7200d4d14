"""Reading ``metrics.jsonl`` while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from server_app.tracking.numbers import Line


class MetricsFile:
    """The lines of a file that grows.

    Parameters
    ----------
    path : Path
        Need not exist yet.

    Attributes
    ----------
    round : int
        The last one that was yielded; 0 before the first.
    offset : int
        The byte after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.round = 0

    def rewind(self) -> None:
        """Begin again with the first line."""
        self.offset = self.round = 0

    def new(self) -> Iterator[Line]:
        """Yield the lines since the last call, up to the first that is not whole.

        Such a line is being written, or a kill cut it short, or the file is damaged: the app mends
        it from its checkpoint when the run goes on. A line that was yielded isn't again, even if
        the caller stops in the middle.

        Raises
        ------
        OSError
            The file can't be read.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self.offset)
            for blob in file:
                line = _parsed(blob, self.round + 1)
                if line is None:
                    return
                self.offset += len(blob)
                self.round += 1
                yield line


def whole_lines(path: Path) -> list[Line]:
    """Return the lines up to the first that is not whole, or not of the next round.

    Raises
    ------
    OSError
        The file is there and can't be read.
    """
    return list(MetricsFile(path).new())


def _parsed(blob: bytes, server_round: int) -> Line | None:
    if not blob.endswith(b"\n"):
        return None
    try:
        line = json.loads(blob)
    except ValueError:  # of UTF-8 and of JSON
        return None
    is_next = isinstance(line, dict) and line.get("round") == server_round
    return line if is_next else None

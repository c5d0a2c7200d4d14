"""``metrics.jsonl``, also while a server writes it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

Line = Mapping[str, Any]
"""A round, as ``RoundReport.record()`` has it; lines of earlier versions have fewer keys."""


TAIL = 1_000_000
"""Bytes: a line of 200 clients has 40,000."""


class MetricsFile:
    """Reads what is new each time it is asked.

    Parameters
    ----------
    path : Path
        It need not be there yet.
    newest_only : bool
        Read the last rounds only, those of the last megabyte: enough to say where a run is.

    Attributes
    ----------
    lines : list[Line]
        The rounds so far, ascending, each once. A last line without its end is not among them: it
        is being written, or was when the server died.
    problems : list[str]
        Lines that are no rounds, one sentence each.
    """

    def __init__(self, path: Path, *, newest_only: bool = False) -> None:
        self._path, self._newest_only = path, newest_only
        self._begin()

    def _begin(self) -> None:
        self.lines: list[Line] = []
        self.problems: list[str] = []
        self._read_bytes = self._read_lines = 0
        self._inode = -1

    def refresh(self) -> bool:
        """Read what was added since the last call; from the start, if the file is another one.

        Returns
        -------
        bool
            Whether anything changed.

        Raises
        ------
        OSError
            The file is there and can't be read.
        """
        try:
            with self._path.open("rb") as file:
                return self._refresh_from(file)
        except FileNotFoundError:
            changed = bool(self.lines or self.problems)
            self._begin()
            return changed

    def _refresh_from(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        # A server that resumes puts another file in its place; one that is copied back is shorter.
        replaced = status.st_ino != self._inode or status.st_size < self._read_bytes
        if replaced:
            self._begin()
            self._inode = status.st_ino
        if self._newest_only and status.st_size > self._read_bytes + TAIL:
            # Also what is left of the line in the middle of which it begins.
            file.seek(status.st_size - TAIL)
            self._read_bytes = status.st_size - TAIL + len(file.readline())
        file.seek(self._read_bytes)
        whole, end, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(end)
        self._take(whole.split(b"\n") if end else ())
        return replaced or bool(end)

    def _take(self, texts: Iterable[bytes]) -> None:
        rounds = {line["round"]: line for line in self.lines}
        for text in texts:
            self._read_lines += 1
            if not text.strip():
                continue
            line = _parsed(text)
            if line is None:
                self.problems.append(f"line {self._read_lines} of {self._path.name} is damaged")
            else:
                rounds[line["round"]] = line
        self.lines = [rounds[number] for number in sorted(rounds)]


def _parsed(text: bytes) -> Line | None:
    """Return a line that says which round it is, None for anything else."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    number = line.get("round") if isinstance(line, dict) else None
    return line if isinstance(number, int) and not isinstance(number, bool) else None


def at(tree: object, *path: str) -> Any:
    """Return what is at ``path`` of nested mappings; None where a step is missing."""
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def number_at(tree: object, *path: str) -> float | None:
    """Return the number at ``path``; None where there is none, or one that is not finite."""
    value = at(tree, *path)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def series(lines: Sequence[Line], *path: str) -> list[tuple[int, float | None]]:
    """Return (round, number) of every line that has the key; null stays None, a gap."""
    return [
        (line["round"], number_at(line, *path))
        for line in lines
        if isinstance(parent := at(line, *path[:-1]), Mapping) and path[-1] in parent
    ]

"""One file, or folder, for each round: the server's checkpoints and what a client keeps."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from common.files import DamagedFileError, remove, set_aside
from common.logs import NAME

log = logging.getLogger(NAME)

Content = TypeVar("Content")


class RoundFiles:
    """``<folder>/round-000012<suffix>`` for each round; other names in the folder are left alone.

    Parameters
    ----------
    folder : Path
        Need not exist.
    suffix : str
        How the names end, as ``.safetensors``; "" for folders.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        self.folder = folder
        self._suffix = suffix
        # As path() writes it, and no other way to write the number, as in a copy by somebody.
        self._name = re.compile(rf"round-([0-9]{{6}}|[1-9][0-9]{{6,}}){re.escape(suffix)}")

    def path(self, server_round: int) -> Path:
        """Return the file of a round; it need not exist."""
        return self.folder / f"round-{server_round:06d}{self._suffix}"

    def rounds(self) -> list[int]:
        """Return the rounds that have a file, newest first."""
        if not self.folder.is_dir():
            return []
        matches = (self._name.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def whole(
        self, read: Callable[[Path], Content], before: int | None = None
    ) -> Iterator[tuple[int, Content]]:
        """Yield the rounds earlier than ``before`` with what ``read`` makes of them, newest first.

        One for which ``read`` raises :class:`DamagedFileError` is set aside, with a warning.
        """
        for server_round in self.rounds():
            if before is not None and server_round >= before:
                continue
            path = self.path(server_round)
            try:
                content = read(path)
            except DamagedFileError as error:
                _set_aside(path, error)
            else:
                yield server_round, content

    def has_damaged(self) -> bool:
        """Return whether one was ever set aside."""
        if not self.folder.is_dir():
            return False
        ends = (path.name.rpartition(".damaged-") for path in self.folder.iterdir())
        return any(self._name.fullmatch(name) and number.isdigit() for name, _, number in ends)

    def delete(self, rounds: Iterable[int]) -> None:
        """Delete the files of ``rounds``.

        Raises
        ------
        OSError
            One can't be deleted.
        """
        for server_round in rounds:
            remove(self.path(server_round))

    def prune(self, keep: int) -> None:
        """Delete all but the newest ``keep``; those set aside stay."""
        self.delete(self.rounds()[keep:])


def _set_aside(path: Path, error: DamagedFileError) -> None:
    try:
        aside = set_aside(path)
    except OSError as failure:
        # Reading goes on: a disk that has become read-only must not hide the other rounds.
        log.warning("%s. It could not be set aside (%s)", error, failure)
    else:
        log.warning("%s. It was set aside as %s", error, aside)

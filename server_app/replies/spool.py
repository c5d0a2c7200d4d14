"""Where train replies wait until they are summed: in memory up to a limit, beyond it on disk.

Aggregation begins when the last reply is in, so that the sum runs in the order of client names
whoever was faster. Flower's aggregators unpack one array of one reply at a time; an array that
lies on disk is read at that moment and forgotten again. So the server's memory grows neither with
the number of clients nor with the aggregator's way of summing (MultiKrum alone unpacks all
replies at once).
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import IO

from flwr.app import Array, ArrayRecord

from common.logs import NAME

log = logging.getLogger(NAME)

MB = 2**20


class Spool:
    """Keeps the arrays of one round's replies.

    The file has no name: the operating system frees it when the last reply is forgotten or the
    process ends, killed or not, so there is never anything to clean.

    Parameters
    ----------
    folder : Path
        On whose disk the file lies.
    memory : int
        Bytes that may stay in memory, at least 0.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self._folder = folder
        self._memory_left = memory
        self._file: IO[bytes] | None = None
        self._end = 0

    def keep(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return a record of the same arrays, which may lie on disk from now on.

        On a disk that is full or read-only they stay in memory, with a warning: losing the reply
        would be worse.
        """
        size = sum(len(array.data) for array in arrays.values())
        if size <= self._memory_left:
            self._memory_left -= size
            return arrays
        try:
            return self._write(arrays)
        except OSError as error:
            log.warning(
                "a reply of %.0f MB can't wait in %s (%s) and stays in memory, beyond "
                "server.replies-in-memory-mb: free space on that disk",
                size / MB,
                self._folder,
                error,
            )
            return arrays

    def _write(self, arrays: ArrayRecord) -> ArrayRecord:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        kept, start = ArrayRecord(), self._end
        for name, array in arrays.items():
            _write_at(self._file, start, array.data)
            kept[name] = _ArrayOnDisk(array, self._file, start)
            start += len(array.data)
        # Only now: what a full disk cut short is overwritten by the next reply.
        self._end = start
        return kept


class _ArrayOnDisk(Array):
    """An Array whose bytes are read whenever somebody asks for them."""

    def __init__(self, array: Array, file: IO[bytes], start: int) -> None:
        self.dtype, self.shape, self.stype = array.dtype, array.shape, array.stype
        self._file, self._start, self._length = file, start, len(array.data)

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes, as they came."""
        return _read_at(self._file, self._start, self._length)


def _write_at(file: IO[bytes], start: int, data: bytes) -> None:
    view, done = memoryview(data), 0
    while done < len(view):  # one call writes at most 2 GB
        done += os.pwrite(file.fileno(), view[done:], start + done)


def _read_at(file: IO[bytes], start: int, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = os.pread(file.fileno(), missing, start + length - missing)
        if not part:
            raise OSError(f"the file of waiting replies is {missing} bytes too short")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

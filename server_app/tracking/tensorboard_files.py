"""TensorBoard: an event file in the experiment's folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from server_app.tracking.destination import Moments, Source
from server_app.tracking.numbers import Line, numbers_of

FOLDER = "tensorboard"


class TensorBoardFiles:
    """One event file with all rounds, written anew whenever a run begins or goes on.

    An event file can't be changed, and rounds may have been taken back since it was written.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder = Path(source.out) if source.out else source.folder / FOLDER
        self._writer: EventFileWriter | None = None

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    def open(self, lines: Iterable[Line]) -> None:
        """Write a new file, and take away those that were here before."""
        before = list(self._folder.glob("events.out.tfevents.*"))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._moments = Moments(self._source)
        self._writer = EventFileWriter(str(self._folder))
        # A TensorBoard that is open forgets with this what it has read of the files before.
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=self._source.begun(), step=0, session_log=start))
        for line in lines:
            self._put(line)
        self._writer.flush()
        for path in before:
            path.unlink(missing_ok=True)

    def add(self, line: Line) -> None:
        """Append a round, and let it reach the disk."""
        self._put(line)
        self._opened.flush()

    def close(self, *, finished: bool) -> None:
        """Close the file."""
        self._opened.close()

    @property
    def _opened(self) -> EventFileWriter:
        if self._writer is None:
            raise RuntimeError("open() comes first")
        return self._writer

    def _put(self, line: Line) -> None:
        moment = self._moments.of(line)
        values = [
            Summary.Value(tag=number.name, simple_value=number.value) for number in numbers_of(line)
        ]
        event = Event(wall_time=moment, step=line["round"], summary=Summary(value=values))
        self._opened.add_event(event)

"""How replies are fetched: one at a time, and whatever is wrong with one is that one's.

A Grid with nothing between nodes and server (a simulation, a test) hands over what is there. From
a SuperLink, parts of unknown size and kind have to be pulled and put together:
:mod:`server_app.exchange.parts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from flwr.app import ArrayRecord, Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from server_app.replies.spool import MB


@dataclass(frozen=True)
class Room:
    """How large a message may be; what is larger is refused before all of it is pulled.

    Attributes
    ----------
    arrays : int
        Bytes of all arrays, unfolded: an array may name one part many times.
    rest : int
        Bytes of everything else: metrics, settings, names, the error and its reason.
    parts : int
        Flower's objects: the message, its records, arrays, and chunks of arrays.
    """

    arrays: int = 0
    rest: int = MB
    parts: int = 64

    @classmethod
    def of_a_model(cls, arrays: ArrayRecord) -> Room:
        """Return the room for a reply with a model like ``arrays``, however it is encoded.

        With a constant for what is not the model, and a kilobyte or two for each array's name,
        shape and list of chunks (Flower's chunks have 5 MB).
        """
        size = sum(len(array.data) for array in arrays.values())
        names = sum(4 * len(name) for name in arrays)  # as JSON writes them: \u00e9 and so on
        small = cls()
        return cls(
            arrays=size + MB,
            rest=small.rest + 1024 * len(arrays) + names + size // 1024,
            parts=small.parts + 2 * len(arrays) + size // MB,
        )


@dataclass(frozen=True)
class Letter:
    """What came in answer to a message.

    Attributes
    ----------
    asked : str
        Id of the message that it answers, as the SuperLink checked it, not as the reply says.
    message : Message or None
        None: there is none that could be used.
    problem : str
        Why not.
    unreadable : bool
        Whether that is what its sender made of it; a reply that got lost is nobody's fault.
    """

    asked: str
    message: Message | None
    problem: str = ""
    unreadable: bool = False

    def reply_to(self, instruction: Message) -> Message:
        """Return the reply, under metadata of our own.

        Who sent it is who was asked: what a reply says of itself is not looked at.
        """
        if self.message is None:
            code = ErrorCode.UNKNOWN if self.unreadable else ErrorCode.MESSAGE_UNAVAILABLE
            return Message(Error(code, self.problem), reply_to=instruction)
        if self.message.has_error():
            return Message(self.message.error, reply_to=instruction)
        return Message(self.message.content, reply_to=instruction)


@runtime_checkable
class Postbox(Protocol):
    """A Grid that fetches letters by itself."""

    def letters(self, asked: Sequence[str], room: Room) -> Iterator[Letter]:
        """See :func:`letters`."""

    def discard(self, asked: Sequence[str]) -> Iterable[tuple[str, bool]]:
        """See :func:`discard`."""


def letters(grid: Grid, asked: Sequence[str], room: Room) -> Iterator[Letter]:
    """Yield what came in answer to the messages ``asked``, each once; never waits.

    What is not there whole yet comes later. A letter that was yielded is not held on to.
    """
    if isinstance(grid, Postbox):
        yield from grid.letters(asked, room)
        return
    pulled = list(grid.pull_messages(asked))
    while pulled:
        message = pulled.pop(0)
        letter = Letter(message.metadata.reply_to_message_id, message)
        del message
        yield letter
        del letter


def discard(grid: Grid, asked: Iterable[str]) -> list[tuple[str, bool]]:
    """Throw away what came in answer to the messages ``asked``, whole or not, without reading it.

    Returns
    -------
    list[tuple[str, bool]]
        Ids of the messages that were answered, and whether the answer was an error.
    """
    ids = list(asked)
    if not ids:
        return []
    if isinstance(grid, Postbox):
        return list(grid.discard(ids))
    came = grid.pull_messages(ids)
    return [(reply.metadata.reply_to_message_id, reply.has_error()) for reply in came]

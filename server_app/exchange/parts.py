"""Replies from a SuperLink, put together from parts that nobody has looked at.

This file uses what is not public in Flower, since ``Grid.pull_messages`` of flwr 1.42 can't be
called safely: it takes parts of any number and size into memory, waits for hours for those that
are missing, unfolds arrays that name one part thousands of times, and lets whatever a reply makes
it raise end the ServerApp, with the other replies of the same call. Here the same calls to the
SuperLink are made for one message at a time, without waiting; types, numbers and sizes of the
parts are checked from the top down, before the next ones are pulled; and what Flower's unpacking
raises then is a property of that message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid import HttpGrid

from server_app.exchange.answer_limit import AnswerLimit, TooLargeError
from server_app.exchange.interruptible import InterruptibleGrid, elsewhere
from server_app.exchange.postbox import Letter, Room
from server_app.replies.spool import MB

LARGEST_ENVELOPE = 32 * MB
"""Bytes of the answer to "is there a reply?": the ids of its parts and the text of its error."""

_LEVELS = (
    {"Message"},
    {"RecordDict"},
    {"ArrayRecord", "MetricRecord", "ConfigRecord"},
    {"Array"},
)
"""What a message is made of, from the top down; below an Array are its chunks."""


class UnreadableError(Exception):
    """A reply that no honest node sends; the text says what is wrong with it."""


class LostError(Exception):
    """A reply whose parts can't be had, for whatever reason."""


class IncompleteError(Exception):
    """A part of the reply has not arrived yet."""

    def __init__(self, object_id: str) -> None:
        super().__init__(object_id)
        self.object_id = object_id


Pull = Callable[[str, int], bytes]
"""Returns a part of at most so many bytes; raises IncompleteError, LostError, UnreadableError."""


def put_together(object_id: str, pull: Pull, room: Room) -> Message:
    """Pull a message's parts and return it.

    Parameters
    ----------
    object_id : str
        Of the message itself.
    pull : callable
    room : Room
        Bounds what is pulled, and what it unfolds to.

    Raises
    ------
    UnreadableError
        Anything about it is not as it should be, or too large.
    IncompleteError, LostError
        From ``pull``.
    """
    contents: dict[str, bytes] = {}
    arrays: dict[str, Sequence[str]] = {}
    ids, rest = [object_id], room.rest
    for kinds in _LEVELS:
        below: dict[str, None] = {}
        for each in ids:
            contents[each] = pull(each, rest)
            rest -= len(contents[each])
            kind, children = _head(contents[each])
            if kind not in kinds:
                raise UnreadableError(f"it has a {kind[:40]!r} where a {_one_of(kinds)} belongs")
            below |= dict.fromkeys(children)
            if kind == "Array":
                arrays[each] = _chunks(contents[each], children)
        ids = list(below)
        if len(contents) + len(ids) > room.parts:
            raise UnreadableError(
                f"it has at least {len(contents) + len(ids)} parts, {room.parts} are allowed"
            )
    _pull_chunks(ids, arrays.values(), pull, room, contents)
    with _blaming_the_sender():
        message = inflate_object_from_contents(object_id, contents)
    if not isinstance(message, Message):
        raise UnreadableError(f"it is a {type(message).__name__}")
    return message


def _pull_chunks(
    ids: Iterable[str],
    arrays: Iterable[Sequence[str]],
    pull: Pull,
    room: Room,
    contents: dict[str, bytes],
) -> None:
    left = room.arrays
    for each in ids:
        contents[each] = pull(each, left + 100)  # with its type and length before it
        kind, children = _head(contents[each])
        if kind != "ArrayChunk" or children:
            raise UnreadableError(f"it has a {kind[:40]!r} where an ArrayChunk belongs")
        left = max(0, left - len(contents[each]))
    unfolded = sum(len(contents[chunk]) for chunks in arrays for chunk in chunks)
    if unfolded > room.arrays:
        raise UnreadableError(
            f"its arrays unfold to {unfolded / MB:.0f} MB, {room.arrays / MB:.0f} MB are allowed"
        )


def _head(content: bytes) -> tuple[str, list[str]]:
    with _blaming_the_sender():
        kind, children, _ = get_object_head_values_from_object_content(content)
        return kind, children


def _chunks(array: bytes, children: Sequence[str]) -> Sequence[str]:
    """Return an array's chunks, as often as it names them."""
    with _blaming_the_sender():
        body = json.loads(array[array.index(b"\0") + 1 :])
        return [children[index] for index in body["arraychunk_ids"]]


@contextmanager
def _blaming_the_sender() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # bytes from outside: whatever they make Flower raise
        text = f"{type(error).__name__}: {error}"[:300]
        raise UnreadableError(f"unpacking it raises {text}") from None


def _one_of(kinds: Iterable[str]) -> str:
    return " or ".join(sorted(kinds))


@dataclass
class _Claim:
    """A reply that the SuperLink has handed over; it does not do so a second time.

    Attributes
    ----------
    object_id : str
    is_error : bool
    awaits : str
        A part that was not there when it was last looked for. At first the message itself: nodes
        send it last.
    """

    object_id: str
    is_error: bool
    awaits: str


class PartsGrid(InterruptibleGrid):
    """A SuperLink's Grid that fetches each reply by itself, within bounds, without waiting."""

    def __init__(self, grid: HttpGrid) -> None:
        super().__init__(grid)
        self._client = grid._runtime_client
        self._node = grid.node
        self._claims: dict[str, _Claim] = {}
        self._most = AnswerLimit()
        hooks = self._client._client.event_hooks
        self._client._client.event_hooks = {
            **hooks,
            "response": [*hooks["response"], self._most.check],
        }

    def letters(self, asked: Sequence[str], room: Room) -> Iterator[Letter]:
        """Yield what is there whole; see :func:`server_app.exchange.postbox.letters`."""
        for key in asked:
            letter = elsewhere(partial(self._letter, key, room))
            if letter is not None:
                yield letter
            del letter

    def discard(self, asked: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """Confirm what is there, unseen; see :func:`server_app.exchange.postbox.discard`."""
        for key in asked:
            is_error = elsewhere(partial(self._discarded, key))
            if is_error is not None:
                yield key, is_error

    def _letter(self, asked: str, room: Room) -> Letter | None:
        try:
            claim = self._claim(asked)
            if claim is None:
                return None
            self._pull(claim.awaits, MB + room.arrays)
            message = put_together(claim.object_id, self._pull, room)
        except IncompleteError as missing:
            self._claims[asked].awaits = missing.object_id
            return None
        except UnreadableError as error:
            letter = Letter(asked, None, f"it can't be unpacked: {error}", unreadable=True)
        except LostError as error:
            letter = Letter(asked, None, str(error))
        else:
            letter = Letter(asked, message)
        self._let_go(asked)
        return letter

    def _discarded(self, asked: str) -> bool | None:
        try:
            claim = self._claim(asked)
        except LostError:
            return True
        if claim is None:
            return None
        self._let_go(asked)
        return claim.is_error

    def _claim(self, asked: str) -> _Claim | None:
        """Return the reply to ``asked``, as far as the SuperLink knows one."""
        if asked in self._claims:
            return self._claims[asked]
        try:
            with self._most.of(LARGEST_ENVELOPE):
                came = self._client.PullMessages(PullAppMessagesRequest(message_ids=[asked]))
        # ValueError: what came can't be parsed.
        except (httpx.HTTPStatusError, TooLargeError, ValueError) as error:
            raise LostError(f"the SuperLink can't hand it over: {_brief(error)}") from None
        for each in came.messages_list:
            object_id = each.metadata.message_id
            if each.metadata.reply_to_message_id == asked and asked not in self._claims:
                self._claims[asked] = _Claim(object_id, each.HasField("error"), object_id)
            else:
                # A node can address messages to the server that answer nothing.
                self._confirm(object_id)
        return self._claims.get(asked)

    def _pull(self, object_id: str, most_bytes: int) -> bytes:
        request = PullObjectRequest(
            node=self._node, run_id=self._grid.run.run_id, object_id=object_id
        )
        try:
            # Besides the content there are a few bytes of protobuf.
            with self._most.of(most_bytes + 1000):
                came = self._client.PullObject(request)
        except TooLargeError as error:
            raise UnreadableError(
                f"{error} bytes in one part, {max(0, most_bytes)} are left for it"
            ) from None
        except (httpx.HTTPStatusError, ValueError) as error:
            raise LostError(f"the SuperLink can't hand it over: {_brief(error)}") from None
        if not came.object_found:
            raise LostError("parts of it never arrived, or no longer exist on the SuperLink")
        if not came.object_available:
            raise IncompleteError(object_id)
        return came.object_content

    def _let_go(self, asked: str) -> None:
        claim = self._claims.pop(asked, None)
        if claim is not None:
            self._confirm(claim.object_id)

    def _confirm(self, object_id: str) -> None:
        """Let the SuperLink delete a message's parts; it does so at the end of the run anyway."""
        request = ConfirmMessageReceivedRequest(
            node=self._node, run_id=self._grid.run.run_id, message_object_id=object_id
        )
        with suppress(httpx.HTTPStatusError):
            self._client.ConfirmMessageReceived(request)


def _brief(error: Exception) -> str:
    if isinstance(error, TooLargeError):
        return f"{error} bytes of names and text, {LARGEST_ENVELOPE} are allowed"
    return f"{type(error).__name__}: {error}"[:300]


def contained(grid: Grid) -> InterruptibleGrid:
    """Return a grid for all calls of a ServerApp: nothing that a node sends raises in them.

    In a simulation there are no parts: nodes and server share their memory.
    """
    return PartsGrid(grid) if isinstance(grid, HttpGrid) else InterruptibleGrid(grid)

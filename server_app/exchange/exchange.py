"""Sending instructions and waiting for replies, bounded in every way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from flwr.app import Message
from flwr.serverapp import Grid

from common import records
from common.config import ServerSettings
from server_app.exchange.clock import Clock
from server_app.exchange.postbox import Letter, Room, letters
from server_app.exchange.reminders import SOONEST, Reminders

FIRST_POLL = 0.05
"""Seconds until replies are asked for a second time; later ones are further apart."""
SLOWEST_POLL = 3.0


@dataclass(frozen=True)
class Patience:
    """How long to wait for replies; :func:`closing_time` says what the numbers mean.

    Attributes
    ----------
    deadline, straggler_grace : float
        Seconds.
    min_replies : int
        Usable replies, at least 1.
    reminder : float
        Seconds without any reply after which those who owe one are reminded, though not even half
        of the replies are in. Once they are, it is done when half of the grace is over.
    silence : float
        Seconds without any reply, or twice the longest wait so far, after which nobody else is
        waited for.
    """

    deadline: float
    min_replies: int
    straggler_grace: float
    reminder: float = math.inf
    silence: float = math.inf

    @classmethod
    def of_a_round(cls, settings: ServerSettings) -> Patience:
        """Return the patience that ``[server]`` asks for."""
        return cls(settings.round_deadline, settings.min_replies, settings.straggler_grace)


Receive = Callable[[str, Message], bool]
"""Takes a reply, with its client's name, when it comes; says whether it is usable."""


@dataclass(frozen=True)
class Exchange:
    """What came of sending messages.

    Attributes
    ----------
    missing : tuple[str, ...]
        Names of those that did not answer in time or could not be sent to, sorted.
    unanswered : Mapping[str, str]
        Names by the id of the message that was delivered but not answered in time.
    unreadable : tuple[str, ...]
        Names of those whose reply could not be unpacked, and is an error now; sorted.
    dropped : int
        Replies beyond the first to one message.
    seconds : float
    bytes_sent, bytes_received : int
        Arrays and byte strings, without Flower's framing.
    """

    missing: tuple[str, ...]
    unanswered: Mapping[str, str]
    unreadable: tuple[str, ...]
    dropped: int
    seconds: float
    bytes_sent: int
    bytes_received: int


def poll_delay(elapsed: float, first: float = FIRST_POLL) -> float:
    """Return how long to sleep before asking again, in seconds.

    A tenth of the time waited so far: a short round is not rounded up to Flower's 3 s, and a
    long one is not polled thousands of times.
    """
    return min(max(first, 0.1 * elapsed), SLOWEST_POLL)


def closing_time(
    sent_at: float, arrivals: Sequence[float], usable: int, expected: int, patience: Patience
) -> float:
    """Return when waiting ends if nobody else answers.

    That is ``deadline`` after sending. It is earlier once half of the replies, and among them
    ``min_replies`` usable ones, are in: then it is ``straggler_grace`` after the newest
    reply, but no less than twice the longest wait between two replies so far (or for the first
    one). So a client counts as a straggler only if it is much slower than the others, and clients
    that take turns on one machine, as in a simulation, are not cut off in the middle. After
    ``silence`` it is over however few replies there are.

    Parameters
    ----------
    sent_at : float
        Clock reading, in seconds.
    arrivals : Sequence[float]
        Clock readings at which replies came, ascending.
    usable : int
        Replies that can be used.
    expected : int
        Messages sent.
    patience : Patience
    """
    last = arrivals[-1] if arrivals else sent_at
    silence = max(patience.silence, 2 * _longest_gap(sent_at, arrivals))
    end = min(sent_at + patience.deadline, last + silence)
    if not _half_are_in(arrivals, expected) or usable < patience.min_replies:
        return end
    return min(end, arrivals[-1] + _grace(sent_at, arrivals, patience))


def _half_are_in(arrivals: Sequence[float], expected: int) -> bool:
    return len(arrivals) >= max(1, math.ceil(expected / 2))


def _grace(sent_at: float, arrivals: Sequence[float], patience: Patience) -> float:
    return max(patience.straggler_grace, 2 * _longest_gap(sent_at, arrivals))


def _longest_gap(sent_at: float, arrivals: Sequence[float]) -> float:
    moments = [sent_at, *arrivals]
    return max((after - before for before, after in pairwise(moments)), default=0.0)


def exchange(
    grid: Grid,
    messages: Iterable[Message],
    receive: Receive,
    *,
    name_of: Callable[[int], str],
    patience: Patience,
    clock: Clock,
    reminders: Reminders,
    room: Room | None = None,
) -> Exchange:
    """Send ``messages`` and hand over the replies as they come, until :func:`closing_time`.

    Replies are pulled by the ids of these messages, so a late reply to an earlier round is never
    taken for one of this round; a second reply to one message is dropped. The sender is known by
    the message it answers, and what it says of itself is not looked at. Nothing that a node sends
    raises: what can't be unpacked is handed over as an error with the reason.

    Parameters
    ----------
    grid : Grid
    messages : Iterable[Message]
        At most one per node.
    receive : callable
        Called once per client that answers, in the order of arrival, also with replies that
        carry an error. Nothing here refers to the reply afterwards.
    name_of : Callable[[int], str]
        Client name of a node id.
    patience : Patience
    clock : Clock
    reminders : Reminders
        The same for all exchanges of a run: it learns which nodes need it.
    room : Room, optional
        How large a reply may be; by default it has no arrays.
    """
    outgoing = list(messages)
    reminders.begin(grid, clock)
    sent_at = clock.now()
    inbox = _Inbox(outgoing, set(grid.push_messages(outgoing)), name_of, receive)

    def remind(silence: float, usual: float) -> None:
        reminders.send(grid, inbox.owing, silence, usual, answered=bool(inbox.answered))

    _collect(grid, inbox, sent_at, patience, clock, room or Room(), remind)
    reminders.end(inbox.heard, inbox.owing)
    return Exchange(
        missing=tuple(sorted(inbox.names - set(inbox.heard.values()))),
        unanswered={key: inbox.awaited[key] for key in inbox.open},
        unreadable=tuple(sorted(inbox.unreadable)),
        dropped=inbox.dropped,
        seconds=clock.now() - sent_at,
        bytes_sent=records.size_in_bytes(outgoing),
        bytes_received=inbox.bytes_received,
    )


class _Inbox:
    """Counts replies and hands each on, with the name of its client."""

    def __init__(
        self,
        outgoing: Iterable[Message],
        accepted: Set[str],
        name_of: Callable[[int], str],
        receive: Receive,
    ) -> None:
        by_id = {message.metadata.message_id: message for message in outgoing}
        self._instructions = {key: each for key, each in by_id.items() if key in accepted}
        # Names now: a node may be gone from the roster when its reply is read.
        names = {key: name_of(each.metadata.dst_node_id) for key, each in by_id.items()}
        self.names = set(names.values())
        self.awaited = {key: name for key, name in names.items() if key in accepted}
        self._receive = receive
        self.answered: set[str] = set()
        self.unreadable: set[str] = set()
        self.usable = self.dropped = self.bytes_received = 0

    @property
    def expected(self) -> int:
        return len(self.awaited)

    @property
    def open(self) -> list[str]:
        """Ids of the messages that nobody has answered yet."""
        return [key for key in self.awaited if key not in self.answered]

    @property
    def owing(self) -> dict[int, str]:
        """Names by node id of those who have not answered yet."""
        return self._nodes(self.open)

    @property
    def heard(self) -> dict[int, str]:
        """Names by node id of those who have answered."""
        return self._nodes(self.answered)

    def _nodes(self, keys: Iterable[str]) -> dict[int, str]:
        return {self._instructions[k].metadata.dst_node_id: self.awaited[k] for k in keys}

    def take(self, letter: Letter) -> bool:
        """Hand a reply on; False if it answers nothing that is open."""
        key = letter.asked
        if key not in self.awaited or key in self.answered:
            self.dropped += 1
            return False
        self.answered.add(key)
        reply = letter.reply_to(self._instructions[key])
        if letter.unreadable:
            self.unreadable.add(self.awaited[key])
        self.bytes_received += records.size_in_bytes([reply])
        self.usable += self._receive(self.awaited[key], reply)
        return True


def _collect(
    grid: Grid,
    inbox: _Inbox,
    sent_at: float,
    patience: Patience,
    clock: Clock,
    room: Room,
    remind: Callable[[float, float], None],
) -> None:
    arrivals: list[float] = []
    while inbox.open:
        began = clock.now()
        for letter in letters(grid, inbox.open, room):
            came = clock.now()
            if inbox.take(letter):
                arrivals.append(came)
            del letter  # nothing may hold on to a reply once it is handed over
        now = clock.now()
        end = closing_time(sent_at, arrivals, inbox.usable, inbox.expected, patience)
        if not inbox.open or now >= end:
            break
        usual = patience.reminder
        if _half_are_in(arrivals, inbox.expected):
            usual = max(_grace(sent_at, arrivals, patience) / 2, SOONEST)
        remind(now - (arrivals[-1] if arrivals else sent_at), usual)
        # Where asking itself takes long, for many clients, it takes half of the time at most.
        pause = max(poll_delay(now - sent_at), min(now - began, SLOWEST_POLL))
        clock.sleep(min(pause, end - now))

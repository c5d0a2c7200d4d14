"""One sending of an instruction, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from server_app.exchange.clock import Clock
from server_app.exchange.exchange import Exchange, Patience, exchange
from server_app.exchange.postbox import Room
from server_app.exchange.reminders import Reminders
from server_app.replies.admission import Gate
from server_app.report.round_report import Participation, Updates


@dataclass(frozen=True)
class Attempt:
    """What of the answers can be used.

    Attributes
    ----------
    exchange : Exchange
    replies : list[Message]
        Usable ones, sorted by client name. Aggregation empties the list: it may be the largest
        thing in the server's memory.
    participation : Participation
    updates : Updates
        Empty for replies without arrays.
    farthest : str
        The participant whose reply is most unlike the others'; empty without arrays.
    """

    exchange: Exchange
    replies: list[Message]
    participation: Participation
    updates: Updates
    farthest: str = ""

    @property
    def reasons(self) -> dict[str, str]:
        """Why each of the other clients gave no usable reply."""
        late = f"no reply within {self.exchange.seconds:.0f} s"
        delivered = set(self.exchange.unanswered.values())
        silent = {
            name: late if name in delivered else "it was gone before it was asked"
            for name in self.participation.missing
        }
        return {**self.participation.refused, **silent}


def ask(
    grid: Grid,
    messages: Iterable[Message],
    gate: Gate,
    *,
    name_of: Callable[[int], str],
    patience: Patience,
    clock: Clock,
    reminders: Reminders,
    room: Room,
    on_failure: Callable[[Mapping[str, str]], None],
) -> Attempt:
    """Send ``messages`` and admit each reply when it comes.

    Parameters
    ----------
    grid, messages, name_of, patience, clock, reminders, room
        See :func:`server_app.exchange.exchange.exchange`.
    gate : Gate
        A fresh one.
    on_failure : callable
        Called with the reason of every client that gives no usable reply, as soon as it is
        known; may raise.
    """

    def receive(name: str, reply: Message) -> bool:
        reason = gate.receive(name, reply)
        if reason:
            on_failure({name: reason})
        return not reason

    came = exchange(
        grid,
        messages,
        receive,
        name_of=name_of,
        patience=patience,
        clock=clock,
        reminders=reminders,
        room=room,
    )
    admission = gate.close()
    attempt = Attempt(
        exchange=came,
        replies=list(admission.admitted.values()),
        participation=Participation(
            participants=tuple(admission.admitted),
            refused=admission.refused,
            missing=came.missing,
            unreadable=came.unreadable,
            dropped=came.dropped,
        ),
        updates=Updates(norms=admission.update_norms, clipped=admission.clipped),
        farthest=admission.farthest,
    )
    if attempt.reasons:
        on_failure(attempt.reasons)
    return attempt

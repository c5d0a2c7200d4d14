"""One sending of an instruction, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message

from server_app.exchange.exchange import Exchange, Patience, exchange
from server_app.exchange.postbox import Room
from server_app.replies.admission import Admission, Gate, explain
from server_app.report.round_report import Participation, Updates
from server_app.rounds.federation import ClientFailedError, Federation


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
    federation: Federation,
    messages: Iterable[Message],
    gate: Gate,
    server_round: int,
    room: Room,
) -> Attempt:
    """Send ``messages``, each in ``room`` for its reply, and admit each reply when it comes.

    Raises
    ------
    ClientFailedError
        A client gives no usable reply, and ``server.failure-policy`` is ``stop``.
    """

    def receive(name: str, reply: Message) -> bool:
        reason = gate.receive(name, reply)
        if reason:
            stop_if_asked(federation, {name: reason}, server_round)
        return not reason

    came = exchange(
        federation.grid,
        messages,
        receive,
        name_of=federation.roster.name_of,
        patience=Patience.of_a_round(federation.settings.server),
        clock=federation.clock,
        reminders=federation.roster.reminders,
        room=room,
    )
    attempt = _attempt(came, gate.close())
    if attempt.reasons:
        stop_if_asked(federation, attempt.reasons, server_round)
    federation.late.expect(came.unanswered, server_round)
    return attempt


def _attempt(came: Exchange, admission: Admission) -> Attempt:
    return Attempt(
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


def stop_if_asked(federation: Federation, reasons: Mapping[str, str], server_round: int) -> None:
    """Raise ClientFailedError if ``server.failure-policy`` is ``stop``."""
    if federation.settings.server.failure_policy == "stop":
        raise ClientFailedError(
            f"round {server_round}: a client failed, and server.failure-policy is stop.\n"
            f"{explain(reasons)}\n"
            f"What was written before is kept in {federation.tracker.folder}."
        )

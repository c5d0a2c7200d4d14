"""When a round ends, and whose reply is whose."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass

import pytest
from flwr.app import Message, RecordDict

from common import records
from server_app.exchange.exchange import (
    Exchange,
    Patience,
    closing_time,
    exchange,
    poll_delay,
)
from server_app.exchange.reminders import Reminders
from tests.in_process.grid import FakeClock, Fault, InProcessGrid, fails, late, never
from tests.server_app.toy import named, toy_client_app

PATIENT = Patience(deadline=100.0, min_replies=1, straggler_grace=10.0)


def grid_of(fake: FakeClock, faults: list[Fault], count: int = 4) -> InProcessGrid:
    """Return a grid of clients a, b, c, d whose faults are those of queries."""
    faults = [Fault(f.node, f.change, f.rounds, records.QUERY) for f in faults]
    return InProcessGrid(toy_client_app(), named(*"abcdefgh"[:count]), {}, faults, fake.clock())


@dataclass
class Came:
    """What an exchange handed over, in the order of arrival, and what it returned."""

    exchange: Exchange
    replies: dict[str, Message]

    @property
    def missing(self) -> tuple[str, ...]:
        return self.exchange.missing

    @property
    def seconds(self) -> float:
        return self.exchange.seconds


def ask(grid: InProcessGrid, fake: FakeClock, patience: Patience = PATIENT) -> Came:
    """Query all nodes of ``grid``, the last first."""
    names = {node_id: config["name"] for node_id, (_, config) in grid.nodes.items()}
    messages = [
        Message(RecordDict(), node_id, records.QUERY) for node_id in sorted(names, reverse=True)
    ]
    replies: dict[str, Message] = {}

    def receive(name: str, reply: Message) -> bool:
        replies[name] = reply
        return not reply.has_error()

    came = exchange(
        grid,
        messages,
        receive,
        name_of=names.__getitem__,
        patience=patience,
        clock=fake.clock(),
        reminders=Reminders(),
    )
    return Came(came, replies)


def test_replies_are_handed_over_when_they_come_and_reported_by_name(fake: FakeClock) -> None:
    came = ask(grid_of(fake, [Fault(0, late(5)), Fault(2, late(1))]), fake)
    assert list(came.replies) in (["b", "d", "c", "a"], ["d", "b", "c", "a"])
    assert came.exchange.missing == ()
    for name, reply in came.replies.items():
        assert reply.content.config_records[records.CLIENT][records.CLIENT_NAME] == name


def test_a_round_in_which_everybody_answers_at_once_sleeps_at_most_one_poll(
    fake: FakeClock,
) -> None:
    came = ask(grid_of(fake, []), fake)
    assert came.missing == ()
    assert fake.naps == []
    assert came.seconds == 0


@pytest.mark.parametrize("seconds", [0.2, 1.0, 4.0, 25.0])
def test_a_reply_is_noticed_within_a_tenth_of_its_time(fake: FakeClock, seconds: float) -> None:
    came = ask(grid_of(fake, [Fault(n, late(seconds)) for n in range(4)]), fake)
    assert seconds <= came.seconds <= seconds * 1.1 + 0.05


def test_polls_never_lie_more_than_three_seconds_apart() -> None:
    assert poll_delay(0) == 0.05
    assert poll_delay(10) == 1.0
    assert poll_delay(3600) == 3.0


def test_the_deadline_ends_a_round_without_a_quorum(fake: FakeClock) -> None:
    came = ask(grid_of(fake, [Fault(n, never) for n in (0, 1, 2)]), fake)
    assert list(came.replies) == ["d"]
    assert came.missing == ("a", "b", "c")
    assert came.seconds == pytest.approx(100.0)


def test_grace_ends_a_round_once_half_have_answered(fake: FakeClock) -> None:
    came = ask(grid_of(fake, [Fault(0, never)]), fake)
    assert came.missing == ("a",)
    assert came.seconds == pytest.approx(10.0)


def test_grace_starts_anew_with_every_reply(fake: FakeClock) -> None:
    # c answers within a's grace, and a within c's.
    came = ask(grid_of(fake, [Fault(2, late(9)), Fault(0, late(17))]), fake)
    assert came.missing == ()
    assert 17 <= came.seconds < 20


def test_an_error_counts_as_an_answer_but_not_towards_min_replies(fake: FakeClock) -> None:
    faults = [Fault(0, never), Fault(1, fails("no")), Fault(2, fails("no"))]
    impatient = Patience(100.0, 2, 10.0)
    came = ask(grid_of(fake, faults), fake, impatient)
    assert came.seconds == pytest.approx(100.0)
    assert came.replies["b"].has_error()
    assert came.missing == ("a",)


def test_no_grace_before_half_have_answered() -> None:
    # 2 of 5: half of 5 is 3.
    assert closing_time(0.0, [1.0, 1.0], 2, 5, PATIENT) == 100.0
    assert closing_time(0.0, [1.0, 1.0, 2.0], 3, 5, PATIENT) == 12.0


def test_clients_that_take_turns_are_waited_for_twice_the_longest_turn() -> None:
    # One client every 20 s on one machine: after the third of six, the fourth comes at 80.
    assert closing_time(0.0, [20.0, 40.0, 60.0], 3, 6, PATIENT) == 60.0 + 2 * 20.0


def test_grace_never_goes_beyond_the_deadline() -> None:
    assert closing_time(0.0, [95.0, 95.0], 2, 4, PATIENT) == 100.0


def test_silence_ends_the_waiting_however_few_have_answered() -> None:
    quiet = Patience(deadline=1000.0, min_replies=3, straggler_grace=10.0, silence=60.0)
    assert closing_time(0.0, [], 0, 3, quiet) == 60.0
    assert closing_time(0.0, [5.0], 1, 3, quiet) == 65.0
    # Clients that take turns, 50 s each: the next is waited for twice as long.
    assert closing_time(0.0, [50.0, 100.0], 2, 10, quiet) == 200.0
    assert closing_time(0.0, [980.0], 1, 3, quiet) == 1000.0


def test_a_late_reply_is_not_taken_for_one_of_the_next_round(fake: FakeClock) -> None:
    grid = grid_of(fake, [Fault(0, late(30))])
    assert ask(grid, fake).missing == ("a",)
    grid.faults = []
    first_of_second = len(grid.sent) + 1
    fake.time += 30  # the late reply is there now
    second = ask(grid, fake)
    assert second.missing == ()
    answered = second.replies["a"].metadata.reply_to_message_id
    assert int(answered.removeprefix("message-")) >= first_of_second


def test_a_node_that_is_gone_when_the_message_is_sent_is_missing_at_once(fake: FakeClock) -> None:
    grid = grid_of(fake, [])
    names = {node_id: config["name"] for node_id, (_, config) in grid.nodes.items()}
    messages = [Message(RecordDict(), node_id, records.QUERY) for node_id in names]
    grid.disconnect(next(iter(names)))
    came = exchange(
        grid,
        messages,
        lambda name, reply: True,
        name_of=names.__getitem__,
        patience=PATIENT,
        clock=fake.clock(),
        reminders=Reminders(),
    )
    assert came.missing == ("a",)
    assert came.unanswered == {}, "nothing was delivered that could be answered late"
    assert came.seconds == 0


def test_a_second_reply_to_one_message_is_dropped(fake: FakeClock) -> None:
    class Doubling(InProcessGrid):
        def pull_messages(self, message_ids: object) -> list[Message]:  # type: ignore[override]
            replies = super().pull_messages(message_ids)  # type: ignore[arg-type]
            return list(itertools.chain.from_iterable((reply, reply) for reply in replies))

    grid = Doubling(toy_client_app(), named("a", "b"), {}, [], fake.clock())
    came = ask(grid, fake)
    assert sorted(came.replies) == ["a", "b"]
    assert came.exchange.dropped == 2


def test_what_was_not_answered_in_time_is_named_by_its_message(fake: FakeClock) -> None:
    grid = grid_of(fake, [Fault(0, never)])
    came = ask(grid, fake)
    message_id, _reminder = [
        message.metadata.message_id
        for message in grid.sent
        if grid.nodes[message.metadata.dst_node_id][1]["name"] == "a"
    ]
    assert came.exchange.unanswered == {message_id: "a"}


def test_a_reply_is_let_go_once_it_is_handed_over(fake: FakeClock) -> None:
    grid = grid_of(fake, [])
    names = {node_id: config["name"] for node_id, (_, config) in grid.nodes.items()}
    handed: list[weakref.ref[Message]] = []

    def receive(name: str, reply: Message) -> bool:
        assert [ref() for ref in handed] == [None] * len(handed), "earlier replies are still held"
        handed.append(weakref.ref(reply))
        return True

    exchange(
        grid,
        [Message(RecordDict(), node_id, records.QUERY) for node_id in names],
        receive,
        name_of=names.__getitem__,
        patience=PATIENT,
        clock=fake.clock(),
        reminders=Reminders(),
    )
    assert len(handed) == 4


def test_nothing_sent_ends_at_once(fake: FakeClock) -> None:
    came = ask(grid_of(fake, [], count=0), fake)
    assert (came.replies, came.missing, came.seconds) == ({}, (), 0)

"""Nodes that hold back their replies until the next message comes."""

from __future__ import annotations

import logging

import pytest
from flwr.app import Message, RecordDict

from common import records
from server_app.exchange.exchange import Exchange, Patience, exchange
from server_app.exchange.reminders import SOONEST, Reminders
from tests.in_process.grid import FakeClock, Fault, InProcessGrid, late, never
from tests.server_app.toy import named, toy_client_app

GRACE = 10.0
PATIENT = Patience(deadline=1000.0, min_replies=1, straggler_grace=GRACE)
EARLY = Patience(deadline=1000.0, min_replies=4, straggler_grace=GRACE, reminder=30.0)
"""As at the start of a run that wants all of its clients."""


class OneBehindGrid(InProcessGrid):
    """Nodes named in ``behind`` send a reply when the next message comes, as flwr 1.42's may."""

    behind: tuple[str, ...] = ()

    def _deliver(self, instruction: Message) -> None:
        super()._deliver(instruction)
        _, config = self.nodes[instruction.metadata.dst_node_id]
        if config["name"] not in self.behind:
            return
        held = self.__dict__.setdefault("held", {})
        before = held.pop(config["name"], None)
        key = instruction.metadata.message_id
        held[config["name"]] = (key, self._replies.pop(key)[1])
        if before:
            self._replies[before[0]] = (self._clock.now(), before[1])


def grid_of(fake: FakeClock, behind: tuple[str, ...], faults: list[Fault]) -> OneBehindGrid:
    faults = [Fault(f.node, f.change, f.rounds, records.QUERY) for f in faults]
    grid = OneBehindGrid(toy_client_app(), named(*"abcd"), {}, faults, fake.clock())
    grid.behind = behind
    return grid


def ask(
    grid: OneBehindGrid, fake: FakeClock, reminders: Reminders, patience: Patience = PATIENT
) -> Exchange:
    names = {node_id: config["name"] for node_id, (_, config) in grid.nodes.items()}
    return exchange(
        grid,
        [Message(RecordDict(), node_id, records.QUERY) for node_id in names],
        lambda name, reply: not reply.has_error(),
        name_of=names.__getitem__,
        patience=patience,
        clock=fake.clock(),
        reminders=reminders,
    )


def test_a_node_that_is_one_reply_behind_answers_within_the_grace(fake: FakeClock) -> None:
    grid = grid_of(fake, ("b",), [])
    came = ask(grid, fake, Reminders())
    assert came.missing == ()
    assert came.seconds == pytest.approx(GRACE / 2, rel=0.25)


def test_once_known_it_is_reminded_soon_and_said_once(
    fake: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    grid, reminders = grid_of(fake, ("b",), []), Reminders()
    patience = Patience(deadline=1000.0, min_replies=1, straggler_grace=60.0)
    with caplog.at_level(logging.WARNING, "moonflower"):
        seconds = [ask(grid, fake, reminders, patience).seconds for _ in range(4)]
    assert seconds[0] == pytest.approx(30.0, rel=0.25)
    assert all(each == pytest.approx(SOONEST, rel=0.25) for each in seconds[1:])
    said = [each for each in caplog.messages if "flwr 1.42" in each]
    assert len(said) == 1
    assert said[0].startswith("b sends each reply only when the next message comes")


def test_a_slow_node_is_not_taken_for_one_that_holds_back(
    fake: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    # It answers its reminder by itself, some seconds after the message before it.
    grid, reminders = grid_of(fake, (), [Fault(1, late(7.0))]), Reminders()
    with caplog.at_level(logging.WARNING, "moonflower"):
        seconds = [ask(grid, fake, reminders).seconds for _ in range(3)]
    assert all(each == pytest.approx(7.0, rel=0.1) for each in seconds)
    assert caplog.messages == []


def test_a_restarted_node_is_no_longer_reminded(fake: FakeClock) -> None:
    grid, reminders = grid_of(fake, ("b",), []), Reminders()
    ask(grid, fake, reminders)
    grid.behind = ()
    key, reply = grid.__dict__["held"].pop("b")
    grid._replies[key] = (fake.time, reply)
    sent = len(grid.sent)
    assert ask(grid, fake, reminders).seconds == 0
    assert len(grid.sent) == sent + 4


def test_all_nodes_behind_are_found_out_at_the_start(fake: FakeClock) -> None:
    grid, reminders = grid_of(fake, tuple("abcd"), []), Reminders()
    start = ask(grid, fake, reminders, EARLY)
    assert start.missing == ()
    # One of them is reminded; when that has answered, the others are.
    assert start.seconds == pytest.approx(2 * EARLY.reminder, rel=0.25)
    # In a round nobody would be reminded before half have answered, but these are known.
    first_round = ask(grid, fake, reminders)
    assert first_round.missing == ()
    assert first_round.seconds == pytest.approx(SOONEST, rel=0.25)


def test_before_anybody_has_answered_one_node_is_reminded(fake: FakeClock) -> None:
    # All of them are opening their data, for longer than a reminder waits.
    grid = grid_of(fake, (), [Fault(node, late(100.0)) for node in range(4)])
    came = ask(grid, fake, Reminders(), EARLY)
    assert came.missing == ()
    assert len(grid.sent) == 4 + 1


def test_the_log_names_three_of_many_that_are_reminded(
    fake: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    grid = InProcessGrid(toy_client_app(), named("a"), {}, [], fake.clock())
    with caplog.at_level(logging.INFO, "moonflower"):
        Reminders().send(grid, {node: f"client-{node:04d}" for node in range(200)}, 30.0, 30.0)
    assert caplog.messages == ["reminding client-0000, client-0001, client-0002 and 197 more"]


def test_a_round_that_wants_everybody_reminds_too(fake: FakeClock) -> None:
    wants_all = Patience(deadline=1000.0, min_replies=4, straggler_grace=GRACE)
    came = ask(grid_of(fake, ("b",), []), fake, Reminders(), wants_all)
    assert came.missing == ()
    assert came.seconds == pytest.approx(GRACE / 2, rel=0.25)


def test_a_slow_node_gets_one_reminder_in_all(fake: FakeClock) -> None:
    # The reminder waits on the node until the message before it is answered, and longer.
    grid = grid_of(fake, (), [Fault(0, late(500.0))])
    came = ask(grid, fake, Reminders(), EARLY)
    assert came.missing == ()
    assert len(grid.sent) == 4 + 1


def test_a_round_does_not_remind_before_half_are_in(fake: FakeClock) -> None:
    grid = grid_of(fake, (), [Fault(n, late(500.0)) for n in range(3)])
    came = ask(grid, fake, Reminders())
    assert came.missing == ()
    assert len(grid.sent) == 4


def test_reminders_to_a_dead_node_end_with_the_exchange(fake: FakeClock) -> None:
    grid, reminders = grid_of(fake, (), [Fault(1, never)]), Reminders()
    assert ask(grid, fake, reminders).missing == ("b",)
    to_b = [m for m in grid.sent if grid.nodes[m.metadata.dst_node_id][1]["name"] == "b"]
    assert len(to_b) == 2, "one message, one reminder that was never answered"


def test_a_node_that_died_is_not_said_to_hold_back_replies(
    fake: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    grid, reminders = grid_of(fake, (), [Fault(1, never)]), Reminders()
    with caplog.at_level(logging.WARNING, "moonflower"):
        for _ in range(3):
            assert ask(grid, fake, reminders).missing == ("b",)
    assert caplog.messages == []


def test_each_further_reminder_waits_twice_as_long() -> None:
    reminders, grid = Reminders(), InProcessGrid(toy_client_app(), named("a"))
    (node_id,) = grid.get_node_ids()
    for silence in (30.0, 60.0, 120.0):
        assert reminders.delay(node_id, 30.0) == silence
        reminders.send(grid, {node_id: "a"}, silence - 1, 30.0)
        assert reminders.delay(node_id, 30.0) == silence, "too early"
        reminders.send(grid, {node_id: "a"}, silence, 30.0)

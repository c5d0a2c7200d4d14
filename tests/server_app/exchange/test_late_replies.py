"""Replies that come when their round is over are thrown away, and forgotten."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest
from flwr.app import Message, RecordDict

from common import records
from server_app.exchange.late_replies import FORGOTTEN_AFTER, LateReplies
from tests.in_process.grid import FakeClock, Fault, InProcessGrid, fails, late
from tests.server_app.toy import named, toy_client_app


class Counting(InProcessGrid):
    """Remembers how many ids were asked for each time."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        message_ids = list(message_ids)
        self.__dict__.setdefault("asked", []).append(len(message_ids))
        return super().pull_messages(message_ids)


def grid_with(fake: FakeClock, *faults: Fault) -> tuple[Counting, dict[str, str]]:
    """Return a grid of clients a, b and c that were sent a query, and their message ids."""
    grid = Counting(toy_client_app(), named(*"abc"), {}, faults, fake.clock())
    messages = [Message(RecordDict(), node_id, records.QUERY) for node_id in grid.nodes]
    keys = grid.push_messages(messages)
    return grid, dict(zip(keys, "abc", strict=True))


def test_what_came_since_is_counted_and_named(
    fake: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="moonflower")
    grid, keys = grid_with(fake, Fault(1, late(50), message_type=records.QUERY))
    replies = LateReplies()
    replies.expect({key: name for key, name in keys.items() if name != "c"}, 4)
    assert replies.drop(grid, 5) == 1
    assert caplog.messages == ["dropped 1 late replies: a (round 4)"]
    fake.time += 60
    assert replies.drop(grid, 6) == 1
    assert caplog.messages[1:] == ["dropped 1 late replies: b (round 4)"]
    assert replies.drop(grid, 7) == 0
    assert grid.asked == [2, 1], "nothing is asked for when nothing is owed"


def test_an_error_is_no_late_reply_but_ends_the_waiting_for_one(fake: FakeClock) -> None:
    grid, keys = grid_with(fake, Fault(0, fails("gone"), message_type=records.QUERY))
    replies = LateReplies()
    replies.expect({key: name for key, name in keys.items() if name == "a"}, 1)
    assert replies.drop(grid, 2) == 0
    replies.drop(grid, 3)
    assert grid.asked == [1]


def test_a_client_that_hangs_for_ever_is_not_asked_for_for_ever(fake: FakeClock) -> None:
    grid, keys = grid_with(
        fake, *[Fault(n, late(10**9), message_type=records.QUERY) for n in range(3)]
    )
    replies = LateReplies()
    replies.expect(keys, 1)
    for server_round in range(2, 30):
        assert replies.drop(grid, server_round) == 0
    assert grid.asked == [3] * FORGOTTEN_AFTER

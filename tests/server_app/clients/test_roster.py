"""Who takes part from round to round."""

from __future__ import annotations

from typing import Any

import pytest

from common import records
from common.config import Settings
from server_app.clients.gather import gather
from server_app.clients.query import Client
from server_app.clients.roster import Roster
from tests.in_process.grid import FakeClock, Fault, InProcessGrid, never
from tests.server_app.toy import grid_of, named, node_of, settings_for


@pytest.fixture
def running(fake: FakeClock) -> tuple[InProcessGrid, Roster, Settings]:
    """Return a federation of a and b that has begun."""
    grid = grid_of(fake, named("a", "b"))
    settings = settings_for(2)
    return grid, gather(grid, settings, fake.clock()), settings


Running = tuple[InProcessGrid, Roster, Settings]


def test_known_nodes_are_not_asked_again(running: Running, fake: FakeClock) -> None:
    grid, roster, settings = running
    asked = len(grid.sent)
    roster.refresh(grid, settings, fake.clock())
    assert len(grid.sent) == asked
    assert roster.names == ("a", "b")


def test_a_new_node_joins_and_a_lost_one_leaves(running: Running, fake: FakeClock) -> None:
    grid, roster, settings = running
    grid.disconnect(node_of(grid, "a"))
    grid.connect({"name": "c"})
    roster.refresh(grid, settings, fake.clock())
    assert roster.names == ("b", "c")
    assert list(roster.label_counts()) == ["b", "c"]


def test_a_client_that_comes_back_under_a_new_node_id_replaces_its_old_self(
    running: Running, fake: FakeClock
) -> None:
    grid, roster, settings = running
    grid.disconnect(node_of(grid, "a"))
    new = grid.connect({"name": "a", "examples": 9})
    roster.refresh(grid, settings, fake.clock())
    assert roster.node_ids(["a"]) == [new]
    assert roster.label_counts()["a"][0] == 9


def test_a_second_node_of_one_name_waits_until_the_first_is_offline(
    running: Running, fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    grid, roster, settings = running
    old = node_of(grid, "a")
    new = grid.connect({"name": "a"})
    for _ in range(3):
        roster.refresh(grid, settings, fake.clock())
        assert roster.node_ids(["a"]) == [old]
    assert warnings.text.count("still counts as online") == 1
    asked = len(grid.sent)
    grid.disconnect(old)
    roster.refresh(grid, settings, fake.clock())
    assert roster.node_ids(["a"]) == [new]
    assert len(grid.sent) == asked, "it had been asked already"


def test_a_new_bad_node_is_left_out_and_asked_again_only_later(
    running: Running, fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    grid, roster, settings = running
    bad = grid.connect({"name": "c", "error": "no data yet"})
    asked = len(grid.sent)
    for _ in range(10):
        roster.refresh(grid, settings, fake.clock())
    assert roster.names == ("a", "b")
    assert len(grid.sent) == asked + 1
    assert "no data yet" in warnings.text
    grid.nodes[bad][1].pop("error")
    roster.refresh(grid, settings, fake.clock())
    assert roster.names == ("a", "b", "c")


def test_a_client_whose_data_have_changed_is_what_it_says_it_is_now(
    running: Running, fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    grid, roster, settings = running
    node = node_of(grid, "b")
    grid.nodes[node][1]["examples"] = 9
    asked = len(grid.sent)
    roster.refresh(grid, settings, fake.clock())
    assert len(grid.sent) == asked
    roster.ask_anew("b")
    assert roster.label_counts()["b"][0] == 5, "within a round nothing changes"
    for _ in range(3):
        roster.refresh(grid, settings, fake.clock())
    assert [message.metadata.dst_node_id for message in grid.sent[asked:]] == [node]
    assert roster.label_counts()["b"][0] == 9
    assert roster.node_ids(["b"]) == [node]
    assert "b has 9 examples now, and had 5" in warnings.text


@pytest.mark.parametrize(
    ("changes", "fault"),
    [({"error": "no images left"}, None), ({}, never), ({"examples": 0}, None)],
    ids=["it can't take part", "it does not answer", "nothing is left"],
)
def test_a_client_that_is_no_good_any_more_is_left_out_like_one_that_came(
    running: Running, fake: FakeClock, changes: dict[str, Any], fault: Any
) -> None:
    grid, roster, settings = running
    grid.nodes[node_of(grid, "b")][1].update(changes)
    grid.faults = [Fault(1, fault, message_type=records.QUERY)] if fault else []
    roster.ask_anew("b")
    before, asked = fake.time, len(grid.sent)
    for _ in range(9):
        roster.refresh(grid, settings, fake.clock())
    queries = [m for m in grid.sent[asked:] if m.content.config_records]
    assert roster.names == ("a",)
    assert len(queries) == 1, "it is asked again later, not in every round"
    assert fake.time - before <= 61


def test_a_client_can_t_take_another_s_name_when_it_is_asked_anew(
    running: Running, fake: FakeClock
) -> None:
    grid, roster, settings = running
    honest = node_of(grid, "a")
    grid.nodes[node_of(grid, "b")][1]["name"] = "a"
    roster.ask_anew("b")
    roster.refresh(grid, settings, fake.clock())
    assert roster.names == ("a",)
    assert roster.node_ids(["a"]) == [honest]


def test_a_new_silent_node_costs_no_more_than_the_start_timeout(
    running: Running, fake: FakeClock
) -> None:
    grid, roster, settings = running
    grid.faults = [Fault(2, never, message_type=records.QUERY)]
    grid.connect({"name": "c"})
    before = fake.time
    roster.refresh(grid, settings, fake.clock())
    assert fake.time - before == pytest.approx(60)
    roster.refresh(grid, settings, fake.clock())
    assert fake.time - before == pytest.approx(60), "not again in the next round"


def test_without_clients_the_wait_is_bounded(running: Running, fake: FakeClock) -> None:
    grid, roster, settings = running
    grid.nodes.clear()
    before = fake.time
    roster.refresh(grid, settings, fake.clock())
    assert roster.names == ()
    assert fake.time - before == pytest.approx(60)


def test_clients_that_come_back_end_the_wait(running: Running, fake: FakeClock) -> None:
    grid, roster, settings = running
    grid.nodes.clear()
    before = fake.time

    class Returning:
        def get_node_ids(self) -> list[int]:
            if fake.time - before >= 20 and not grid.nodes:
                grid.connect({"name": "a"})
            return list(grid.nodes)

        def __getattr__(self, name: str) -> Any:
            return getattr(grid, name)

    roster.refresh(Returning(), settings, fake.clock())  # type: ignore[arg-type]
    assert roster.names == ("a",)
    assert 20 <= fake.time - before < 24


def test_a_roster_of_two_equal_names_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="two clients are named 'a'"):
        Roster([Client("a", 1, (1,)), Client("a", 2, (1,))])

"""Who may take part at the start, and what a person is told if nobody can."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import Error, Message

from common import records
from server_app.clients.gather import StartError, gather
from tests.in_process.grid import FakeClock, Fault, InProcessGrid, late, never
from tests.server_app.toy import grid_of, named, node_of, settings_for


def gone(reply: Message) -> Message:
    """Flower's word that the node is not there."""
    error = Error(5, "node unavailable")
    return Message(error=error, metadata=reply.metadata)  # type: ignore[call-overload]


def test_clients_are_known_by_name_sorted_whatever_their_node_ids(fake: FakeClock) -> None:
    grid = grid_of(fake, named("b", "c", "a", examples=3))
    roster = gather(grid, settings_for(3), fake.clock())
    assert roster.names == ("a", "b", "c")
    assert [client.name for client in roster.clients] == ["a", "b", "c"]
    assert roster.label_counts() == {name: [3] + [0] * 9 for name in "abc"}
    ids = {config["name"]: node_id for node_id, (_, config) in grid.nodes.items()}
    assert roster.node_ids(["c", "a"]) == [ids["c"], ids["a"]]
    assert roster.name_of(ids["b"]) == "b"


def test_the_query_names_the_experiment(fake: FakeClock) -> None:
    grid = grid_of(fake, named("a"))
    gather(grid, settings_for(1), fake.clock())
    (message,) = grid.sent
    assert message.metadata.message_type == records.QUERY
    assert message.content.config_records[records.CONFIG][records.EXPERIMENT] == "x"


def test_too_few_nodes_end_the_waiting_with_numbers_and_remedies(fake: FakeClock) -> None:
    grid = grid_of(fake, named("a", "b"))
    with pytest.raises(StartError) as caught:
        gather(grid, settings_for(10), fake.clock())
    assert fake.time - 1000 == pytest.approx(60)
    message = str(caught.value)
    assert "2 of the 10 clients" in message
    assert "within 60 s" in message
    assert "server.min-clients=N" in message
    assert '--federation-config "num-supernodes=10"' in message
    assert grid.sent == []


def test_nodes_that_connect_one_after_the_other_are_all_waited_for(fake: FakeClock) -> None:
    class Growing(InProcessGrid):
        looks = 0

        def get_node_ids(self) -> list[int]:
            self.looks += 1
            if self.looks <= 3:
                self.connect({"name": f"late-{self.looks}"})
            return list(self.nodes)

    # Two are enough, but a third comes between two looks.
    grid = grid_of(fake, named("a"), cls=Growing)
    roster = gather(grid, settings_for(2), fake.clock())
    assert roster.names == ("a", "late-1", "late-2", "late-3")


def test_a_start_with_enough_nodes_is_not_slow(fake: FakeClock) -> None:
    gather(grid_of(fake, named("a", "b")), settings_for(2), fake.clock())
    assert fake.time - 1000 == pytest.approx(0.2)


def test_two_clients_of_one_name_are_refused_with_the_name(fake: FakeClock) -> None:
    with pytest.raises(StartError, match=r"one client name: 'a' \(2 nodes\)\.") as caught:
        gather(grid_of(fake, named("a", "a", "b")), settings_for(3), fake.clock())
    assert "client-name" in str(caught.value)


@pytest.mark.parametrize(
    "shares", [("0 of 2", "0 of 2"), ("0 of 2", "1 of 3")], ids=["the same share", "other splits"]
)
def test_shares_of_the_data_that_overlap_are_refused(
    fake: FakeClock, shares: tuple[str, str]
) -> None:
    configs = [{"name": n, "partition": share} for n, share in zip("ab", shares, strict=True)]
    with pytest.raises(StartError, match=rf"{shares[1]}.*partition-id of its own"):
        gather(grid_of(fake, configs), settings_for(2), fake.clock())


def test_more_replies_than_clients_are_refused_before_any_training(fake: FakeClock) -> None:
    settings = settings_for(1, **{"server.min-replies": 3})
    with pytest.raises(StartError, match=r"min-replies is 3, and 2 clients"):
        gather(grid_of(fake, named("a", "b")), settings, fake.clock())


def test_all_clients_with_an_error_are_listed_equal_reasons_once(fake: FakeClock) -> None:
    missing = named(*[f"c{n}" for n in range(5)], error="no MNIST in /data")
    configs = [*missing, *named("d", error="no disk"), *named("e")]
    with pytest.raises(StartError) as caught:
        gather(grid_of(fake, configs), settings_for(2), fake.clock())
    message = str(caught.value)
    assert message.startswith("6 of 7 clients can't take part:")
    assert message.count("no MNIST in /data") == 1
    assert "5 clients" in message
    assert "no disk" in message


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"name": "a", "examples": 0}, "no training examples"),
        ({"name": "../a"}, "can't be used as a folder name"),
        ({"name": ""}, "can't be used as a folder name"),
        ({"name": "a", "examples": -1}, "10 whole numbers from 0"),
    ],
)
def test_a_client_that_can_t_be_used_stops_the_start(
    fake: FakeClock, config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(StartError, match=reason):
        gather(grid_of(fake, [config, *named("b")]), settings_for(1), fake.clock())


def test_a_client_app_that_crashes_stops_the_start(fake: FakeClock) -> None:
    with pytest.raises(StartError, match="KeyError: 'name'"):
        gather(grid_of(fake, [{}, *named("b")]), settings_for(1), fake.clock())


SITES = {"data.source": "npz", "data.image-shape": "1x8x8", "data.num-classes": 10}


def test_a_site_whose_data_can_t_be_used_is_left_out_with_the_reason_and_asked_again_later(
    fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    grid = grid_of(fake, named("a", "b") + named("c", error="labels lie outside 0 to 9"))
    settings = settings_for(2, **SITES)
    roster = gather(grid, settings, fake.clock())
    assert roster.names == ("a", "b")
    assert "1 of 3 clients can't take part" in warnings.text
    assert "): labels lie outside 0 to 9" in warnings.text
    asked = len(grid.sent)
    mended = node_of(grid, "c")
    grid.nodes[mended][1].pop("error")
    for _ in range(9):
        roster.refresh(grid, settings, fake.clock())
    assert len(grid.sent) == asked, "it was told why a moment ago"
    roster.refresh(grid, settings, fake.clock())
    assert roster.names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("bad", "overrides"),
    [
        (1, {"server.failure-policy": "stop"}),  # wanted so
        (1, {"server.min-clients": 3}),  # the others are too few
        (1, {"server.min-replies": 3}),
        (3, {}),  # there are no others
    ],
)
def test_without_enough_other_sites_the_reason_stops_the_start(
    fake: FakeClock, bad: int, overrides: dict[str, Any]
) -> None:
    names = ("a", "b", "c")
    grid = grid_of(fake, named(*names[bad:]) + named(*names[:bad], error="no images"))
    with pytest.raises(StartError, match=rf"{bad} of 3 clients can't(.|\n)*no images"):
        gather(grid, settings_for(1, **SITES | overrides), fake.clock())


def test_a_silent_node_is_done_without_if_the_others_are_enough(
    fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    grid = grid_of(fake, named("a", "b", "c"), Fault(2, never, message_type=records.QUERY))
    roster = gather(grid, settings_for(2), fake.clock())
    assert roster.names == ("a", "b")
    assert "no answer to the query" in warnings.text


def test_a_silent_node_that_is_needed_stops_the_start_at_the_deadline(fake: FakeClock) -> None:
    grid = grid_of(fake, named("a", "b"), Fault(1, never, message_type=records.QUERY))
    with pytest.raises(StartError, match=r"1 of the 2 clients(.|\n)*no answer to the query"):
        gather(grid, settings_for(2, **{"server.round-deadline": 90.0}), fake.clock())
    assert fake.time - 1000 == pytest.approx(90.2)


def test_flower_s_word_that_a_node_is_gone_counts_as_silence(fake: FakeClock) -> None:
    grid = grid_of(fake, named("a", "b"), Fault(1, gone, message_type=records.QUERY))
    assert gather(grid, settings_for(1), fake.clock()).names == ("a",)
    assert fake.time - 1000 < 1, "it is not needed, and not waited for"


def test_a_node_that_died_a_moment_ago_is_asked_again_when_it_is_back(
    fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    # As with node keys: it comes back under the same id, 40 s later.
    class Reviving(InProcessGrid):
        back_at = 0.0

        def get_node_ids(self) -> list[int]:
            if fake.time >= self.back_at:
                self.faults = []
                return list(self.nodes)
            return [n for n in self.nodes if not self.sent or self.nodes[n][1]["name"] != "b"]

    fault = Fault(1, gone, message_type=records.QUERY)
    grid = grid_of(fake, named("a", "b", "c"), fault, cls=Reviving)
    grid.back_at = fake.time + 40  # type: ignore[attr-defined]
    assert gather(grid, settings_for(3), fake.clock()).names == ("a", "b", "c")
    assert 40 <= fake.time - 1000 < 45
    assert "1 nodes went away; waiting until they are back" in warnings.text
    asked = [grid.nodes[message.metadata.dst_node_id][1]["name"] for message in grid.sent]
    assert sorted(asked) == ["a", "b", "b", "c"], "nobody else is asked twice"


def test_a_node_that_comes_back_under_another_id_is_taken(fake: FakeClock) -> None:
    class Replacing(InProcessGrid):
        def get_node_ids(self) -> list[int]:
            if fake.time >= 1030 and len(self.nodes) == 2 and self.faults:
                self.faults = []
                self.disconnect(next(n for n, (_, c) in self.nodes.items() if c["name"] == "b"))
                self.connect({"name": "b"})
            return list(self.nodes)

    fault = Fault(1, gone, message_type=records.QUERY)
    grid = grid_of(fake, named("a", "b"), fault, cls=Replacing)
    assert gather(grid, settings_for(2), fake.clock()).names == ("a", "b")


def test_a_node_that_stays_away_ends_the_start_after_the_timeout(fake: FakeClock) -> None:
    grid = grid_of(fake, named("a", "b"), Fault(1, gone, message_type=records.QUERY))
    with pytest.raises(StartError, match=r"1 of the 2 clients(.|\n)*node unavailable"):
        gather(grid, settings_for(2), fake.clock())
    assert fake.time - 1000 == pytest.approx(60.2, abs=1.0)


def test_a_slow_answer_at_the_start_is_waited_for(fake: FakeClock) -> None:
    grid = grid_of(
        fake,
        named("a", "b"),
        *[Fault(n, late(120), message_type=records.QUERY) for n in range(2)],
    )
    assert gather(grid, settings_for(2), fake.clock()).names == ("a", "b")


def test_what_a_client_makes_long_is_shortened(fake: FakeClock) -> None:
    long = "x" * 10**6
    configs = [*named(long), *named("a", error=long)]
    with pytest.raises(StartError, match="2 of 2 clients") as caught:
        gather(grid_of(fake, configs), settings_for(2), fake.clock())
    assert len(str(caught.value)) < 10_000

"""Who may take part at the start, and what a person is told if nobody can."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import Error, Message

from common import records
from common.config import SettingsError
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
    grid = grid_of(fake, named("a", "a", "b"))
    with pytest.raises(StartError, match="several nodes have one client name") as caught:
        gather(grid, settings_for(3), fake.clock())
    first, second = sorted(n for n, (_, config) in grid.nodes.items() if config["name"] == "a")
    assert f"('a': nodes {first}, {second})" in str(caught.value)
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


@pytest.mark.parametrize(("deadline", "waited"), [(3600.0, 60.0), (30.0, 30.0)])
def test_a_silent_node_that_is_needed_is_named_at_the_start_timeout_with_what_to_do(
    fake: FakeClock, deadline: float, waited: float
) -> None:
    grid = grid_of(fake, named("a", "b", "c"), Fault(1, never, message_type=records.QUERY))
    with pytest.raises(StartError, match=r"2 of the 3 clients(.|\n)*no answer to") as caught:
        gather(grid, settings_for(3, **{"server.round-deadline": deadline}), fake.clock())
    assert f"node {node_of(grid, 'b')}: no answer" in str(caught.value)
    assert "restart its SuperNode" in str(caught.value)
    assert fake.time - 1000 == pytest.approx(waited + 0.2)


def test_a_node_that_was_silent_at_the_start_does_not_hold_up_the_first_round(
    fake: FakeClock,
) -> None:
    grid = grid_of(fake, named("a", "b", "c"), Fault(2, never, message_type=records.QUERY))
    settings = settings_for(2, **{"server.straggler-grace": 5.0})
    roster = gather(grid, settings, fake.clock())
    before = fake.time
    roster.refresh(grid, settings, fake.clock())
    assert fake.time == before


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
        *[Fault(n, late(50 + 50 * n), message_type=records.QUERY) for n in range(2)],
    )
    assert gather(grid, settings_for(2), fake.clock()).names == ("a", "b")


def test_a_class_0_that_nobody_has_is_warned_of(
    fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    from_1 = [0, *[3] * 9]
    configs = [*named("a", labels=from_1), *named("b", labels=from_1)]
    gather(grid_of(fake, configs), settings_for(2), fake.clock())
    assert "class 0 has no training example at any client: are the labels counted" in warnings.text


def test_a_class_0_that_one_client_has_is_not(
    fake: FakeClock, warnings: pytest.LogCaptureFixture
) -> None:
    configs = [*named("a", labels=[0, *[3] * 9]), *named("b", labels=[1, *[0] * 9])]
    gather(grid_of(fake, configs), settings_for(2), fake.clock())
    assert "class 0" not in warnings.text


@pytest.mark.parametrize("key", ["data.partition", "data.alpha"])
def test_a_partition_that_the_run_asks_for_and_no_client_has_is_refused(
    fake: FakeClock, key: str
) -> None:
    grid = grid_of(fake, named("a", "b"))
    grid.overrides = {key: "whatever", "moon.mu": 5.0}
    with pytest.raises(SettingsError, match=rf"^{key} can't apply: no client has a partition"):
        gather(grid, settings_for(2, **SITES), fake.clock())


def test_a_partition_that_clients_have_may_be_set(fake: FakeClock) -> None:
    configs = [{"name": name, "partition": f"{i} of 2"} for i, name in enumerate("ab")]
    grid = grid_of(fake, configs)
    grid.overrides = {"data.partition": "iid"}
    assert gather(grid, settings_for(2, **SITES), fake.clock()).names == ("a", "b")


@pytest.mark.parametrize(("liars", "stops"), [(0, False), (1, False), (2, True)])
def test_shares_of_own_data_are_everybody_s_affair_if_all_usable_clients_hold_one(
    fake: FakeClock, liars: int, stops: bool
) -> None:
    configs = [
        {"name": name, "partition": f"{i} of 3" if i < liars else ""} for i, name in enumerate("ab")
    ]
    grid = grid_of(fake, [*configs, *named("c", error="no examples", partition="2 of 3")])
    if stops:
        with pytest.raises(StartError, match="1 of 3 clients can't take part"):
            gather(grid, settings_for(2, **SITES), fake.clock())
    else:
        assert gather(grid, settings_for(2, **SITES), fake.clock()).names == ("a", "b")


def test_what_a_client_makes_long_is_shortened(fake: FakeClock) -> None:
    long = "x" * 10**6
    configs = [*named(long), *named("a", error=long)]
    with pytest.raises(StartError, match="2 of 2 clients") as caught:
        gather(grid_of(fake, configs), settings_for(2), fake.clock())
    assert len(str(caught.value)) < 10_000

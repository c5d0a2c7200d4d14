"""Whatever a node sends, the others' round goes on, to the bit."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from common import records
from common.data import data_spec
from common.models import build_model
from server_app.clients.gather import gather
from server_app.exchange.exchange import Patience, exchange
from server_app.exchange.late_replies import LateReplies
from server_app.exchange.reminders import Reminders
from server_app.experiment.tracker import Tracker
from server_app.rounds.federation import Federation
from server_app.rounds.loop import run_rounds
from tests.in_process.grid import FakeClock, Fault, InProcessGrid, never, task_identity
from tests.in_process.parts import Hostile, PartsDouble, parts_grid
from tests.in_process.uploads import (
    ABSENT,
    HARMLESS,
    LOST,
    MB,
    UNREADABLE,
    USELESS,
    Attack,
    Upload,
    array_bomb,
    big,
    custom_class,
    drip,
    error_30mb,
    half,
    no_protobuf,
    part,
    upload_of,
)
from tests.server_app.toy import toy_client_app
from tests.settings import make_settings

SITES = [
    {"name": "a", "step": 1.0, "examples": 5},
    {"name": "b", "step": 2.0, "examples": 5},
    {"name": "c", "step": 4.0, "examples": 5},
]
ROUNDS = 3
BAD = 2
"""The round in which c, the third site, is hostile."""


@pytest.fixture(autouse=True)
def identity() -> Any:
    with task_identity():
        yield


@pytest.fixture
def fake() -> FakeClock:
    return FakeClock()


def play(folder: Path, grid: Grid, fake: FakeClock, **overrides: Any) -> Federation:
    """Play three rounds of FedAvg and return what they have left."""
    settings = make_settings(
        **{
            "algorithm": "fedavg",
            "server.min-clients": 2,
            "server.min-replies": 2,
            "server.straggler-grace": 10.0,
            "num-rounds": ROUNDS,
            "experiment": "exp",
            **overrides,
        }
    )
    roster = gather(grid, settings, fake.clock())
    spec = data_spec(settings.data)
    model = build_model(settings.model, spec, settings.seed)
    tracker = Tracker(folder / "exp", settings, spec)
    tracker.begin(roster.clients)
    strategy = FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    federation = Federation(settings, grid, roster, strategy, model, None, tracker, fake.clock())
    run_rounds(federation)
    return federation


def lines_of(federation: Federation) -> list[dict[str, Any]]:
    text = (federation.tracker.folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def attacked(
    folder: Path, fake: FakeClock, *hostile: Hostile, **overrides: Any
) -> tuple[Federation, PartsDouble]:
    double = PartsDouble(toy_client_app(), SITES, hostile, fake.clock())
    return play(folder / "attacked", parts_grid(double), fake, **overrides), double


def silent(folder: Path, *faults: Fault, **overrides: Any) -> Federation:
    """Play without the SuperLink's parts; faults are silences of c."""
    fake = FakeClock()
    grid = InProcessGrid(toy_client_app(), SITES, {}, faults, fake.clock())
    return play(folder / "silent", grid, fake, **overrides)


def same(one: Federation, other: Federation) -> bool:
    a, b = one.model.state_dict(), other.model.state_dict()
    return all(_bits(a[name]) == _bits(b[name]) for name in a)


def _bits(tensor: Tensor) -> bytes:
    return np.ascontiguousarray(tensor.numpy()).tobytes()


def test_honest_replies_in_parts_give_the_bits_of_replies_as_they_are(
    tmp_path: Path, fake: FakeClock
) -> None:
    federation, double = attacked(tmp_path, fake)
    assert same(federation, silent(tmp_path))
    assert [line["participants"] for line in lines_of(federation)] == [["a", "b", "c"]] * ROUNDS
    assert double.confirmed == double.announced, "nothing is left on the SuperLink"


@pytest.mark.parametrize("attack", [*UNREADABLE, *USELESS], ids=lambda attack: attack.__name__)
def test_a_reply_that_cannot_be_used_is_its_senders_refusal(
    tmp_path: Path, fake: FakeClock, attack: Attack
) -> None:
    federation, double = attacked(tmp_path, fake, Hostile(2, attack, {BAD}))
    line = lines_of(federation)[BAD - 1]
    assert list(line["refused"]) == ["c"]
    assert {**UNREADABLE, **USELESS}[attack] in line["refused"]["c"]
    assert line["unreadable"] == (["c"] if attack in UNREADABLE else [])
    assert len(line["refused"]["c"]) < 700
    assert same(federation, silent(tmp_path, Fault(2, never, {BAD})))
    assert lines_of(federation)[ROUNDS - 1]["participants"] == ["a", "b", "c"]
    assert double.confirmed == double.announced, "a refused reply is deleted on the SuperLink too"


@pytest.mark.parametrize("attack", LOST, ids=lambda attack: attack.__name__)
def test_a_reply_of_which_parts_are_gone_is_refused_but_nobody_is_blamed(
    tmp_path: Path, fake: FakeClock, attack: Attack
) -> None:
    federation, _ = attacked(tmp_path, fake, Hostile(2, attack, {BAD}))
    line = lines_of(federation)[BAD - 1]
    assert "never arrived" in line["refused"]["c"]
    assert line["unreadable"] == []
    assert same(federation, silent(tmp_path, Fault(2, never, {BAD})))


@pytest.mark.parametrize("attack", ABSENT, ids=lambda attack: attack.__name__)
def test_what_is_half_there_does_not_hold_up_the_round(
    tmp_path: Path, fake: FakeClock, attack: Attack
) -> None:
    federation, double = attacked(tmp_path, fake, Hostile(2, attack, {BAD}))
    line = lines_of(federation)[BAD - 1]
    assert line["missing"] == ["c"]
    # The two others answer at once.
    assert line["seconds"]["train"] == pytest.approx(10.0)
    assert same(federation, silent(tmp_path, Fault(2, never, {BAD})))
    assert double.confirmed == double.announced, "it is thrown away when the next round begins"


def test_the_deadline_holds_for_a_round_that_wants_a_reply_that_drips(
    tmp_path: Path, fake: FakeClock
) -> None:
    double = PartsDouble(toy_client_app(), SITES, (Hostile(2, drip),), fake.clock())
    messages = [
        Message(_instruction(), node_id, records.TRAIN) for node_id in double.get_node_ids()
    ]
    came = exchange(
        parts_grid(double),
        messages,
        lambda name, reply: True,
        name_of=lambda node_id: str(double.nodes[node_id][1]["name"]),
        patience=Patience(deadline=30.0, min_replies=3, straggler_grace=60.0),
        clock=fake.clock(),
        reminders=Reminders(),
    )
    assert came.missing == ("c",)
    assert came.seconds == pytest.approx(30.0)


def test_a_reply_that_comes_slowly_but_whole_counts(tmp_path: Path, fake: FakeClock) -> None:
    def slow(reply: Message) -> Upload:
        upload = upload_of(reply)
        upload.every = 0.5
        return upload

    federation, _ = attacked(tmp_path, fake, Hostile(2, slow, {BAD}))
    assert lines_of(federation)[BAD - 1]["participants"] == ["a", "b", "c"]
    assert same(federation, silent(tmp_path))


def _instruction() -> RecordDict:
    settings = make_settings()
    model = build_model(settings.model, data_spec(settings.data), 0)
    arrays = records.to_arrays({"w": next(iter(model.parameters()))})
    config = ConfigRecord({records.ROUND: 1})
    return RecordDict({records.ARRAYS: arrays, records.CONFIG: config})


@pytest.mark.parametrize("attack", HARMLESS, ids=lambda attack: attack.__name__)
def test_what_a_reply_says_of_itself_is_not_looked_at(
    tmp_path: Path, fake: FakeClock, attack: Attack
) -> None:
    federation, _ = attacked(tmp_path, fake, Hostile(2, attack, {BAD}))
    assert same(federation, silent(tmp_path))
    assert lines_of(federation)[BAD - 1]["participants"] == ["a", "b", "c"]


def test_a_reply_that_is_handed_on_names_the_node_that_was_asked(fake: FakeClock) -> None:
    hostile = Hostile(2, HARMLESS[0], message_type=records.QUERY)
    double = PartsDouble(toy_client_app(), SITES, (hostile,), fake.clock())
    names = {node_id: str(config["name"]) for node_id, (_, config) in double.nodes.items()}
    senders: dict[str, int] = {}

    def receive(name: str, reply: Message) -> bool:
        senders[name] = reply.metadata.src_node_id
        return True

    exchange(
        parts_grid(double),
        [Message(RecordDict(), node_id, records.QUERY) for node_id in names],
        receive,
        name_of=names.__getitem__,
        patience=Patience(100.0, 1, 10.0),
        clock=fake.clock(),
        reminders=Reminders(),
    )
    assert senders == {name: node_id for node_id, name in names.items()}


def test_nothing_larger_than_the_reply_may_be_is_ever_taken_from_the_superlink(
    tmp_path: Path, fake: FakeClock
) -> None:
    federation, double = attacked(tmp_path, fake, Hostile(2, big, {BAD}))
    arrays = records.to_arrays(federation.model.state_dict())
    model = sum(len(array.data) for array in arrays.values())
    # Flower's chunks have 5 MB; the one with 40 MB is cut into eight.
    assert double.longest <= max(model + MB, 5 * MB) + 2000
    assert "in one part" in lines_of(federation)[BAD - 1]["refused"]["c"]


def test_a_message_that_answers_nothing_is_thrown_away(tmp_path: Path, fake: FakeClock) -> None:
    double = PartsDouble(toy_client_app(), SITES, (), fake.clock())
    upload = Upload("ef" * 32, {"ef" * 32: part("CustomDataClass", [], b"x")})
    double.put(upload)
    double.announce("", upload, Message(RecordDict(), 1, records.TRAIN))
    double.unasked = double.waiting.pop("")
    federation = play(tmp_path / "attacked", parts_grid(double), fake)
    assert same(federation, silent(tmp_path))
    assert "ef" * 32 in double.confirmed


def test_of_two_replies_to_one_message_the_first_counts(tmp_path: Path, fake: FakeClock) -> None:
    class Doubling(PartsDouble):
        def announce(self, asked: str, upload: Upload, reply: Message) -> None:
            super().announce(asked, upload, reply)
            again = custom_class(reply)
            self.put(again)
            super().announce(asked, again, reply)

    double = Doubling(toy_client_app(), SITES, (), fake.clock())
    assert same(play(tmp_path / "attacked", parts_grid(double), fake), silent(tmp_path))


def test_trouble_of_the_superlink_with_one_reply_is_that_replys(
    tmp_path: Path, fake: FakeClock
) -> None:
    def fail() -> None:
        request = httpx.Request("POST", "http://superlink/v1/runtime/pull-messages")
        raise httpx.HTTPStatusError(
            "500 Internal Server Error", request=request, response=httpx.Response(500)
        )

    class Failing(PartsDouble):
        def announce(self, asked: str, upload: Upload, reply: Message) -> None:
            super().announce(asked, upload, reply)
            if reply.metadata.message_type == records.TRAIN and upload.root == marked[0]:
                self.trouble[asked] = fail

    marked = [""]

    def mark(reply: Message) -> Upload:
        upload = upload_of(reply)
        marked[0] = upload.root
        return upload

    double = Failing(toy_client_app(), SITES, (Hostile(2, mark, {BAD}),), fake.clock())
    federation = play(tmp_path / "attacked", parts_grid(double), fake)
    line = lines_of(federation)[BAD - 1]
    assert "500 Internal Server Error" in line["refused"]["c"]
    assert line["unreadable"] == []
    assert same(federation, silent(tmp_path, Fault(2, never, {BAD})))


@pytest.mark.parametrize("attack", [custom_class, array_bomb, error_30mb, no_protobuf])
def test_an_evaluation_that_cannot_be_unpacked_is_left_out(
    tmp_path: Path, fake: FakeClock, attack: Attack
) -> None:
    def instead(reply: Message) -> Upload:
        reply.content[records.ARRAYS] = _instruction()[records.ARRAYS]
        return attack(reply)

    hostile = Hostile(2, instead, {BAD}, records.EVALUATE)
    federation, _ = attacked(tmp_path, fake, hostile)
    line = lines_of(federation)[BAD - 1]
    assert list(line["evaluation"]["refused"]) == line["evaluation"]["unreadable"] == ["c"]
    assert line["evaluation"]["participants"] == ["a", "b"]
    assert same(federation, silent(tmp_path))


@pytest.mark.parametrize("attack", [custom_class, error_30mb, no_protobuf])
def test_a_node_whose_answer_to_the_query_cannot_be_unpacked_does_not_stop_the_start(
    tmp_path: Path, fake: FakeClock, caplog: pytest.LogCaptureFixture, attack: Attack
) -> None:
    hostile = Hostile(2, attack, message_type=records.QUERY)
    with caplog.at_level(logging.WARNING, "moonflower"):
        federation, double = attacked(tmp_path, fake, hostile, **{"num-rounds": 25})
    assert [line["participants"] for line in lines_of(federation)] == [["a", "b"]] * 25
    (node_id,) = [key for key, (index, _) in double.nodes.items() if index == 2]
    assert f"node {node_id}: it can't be unpacked" in caplog.text
    queries = [m for m in double.sent if m.metadata.dst_node_id == node_id]
    assert len(queries) == 2, "after the second such answer it is asked no more"


@pytest.mark.parametrize("attack", [array_bomb, half], ids=lambda attack: attack.__name__)
def test_a_late_reply_and_an_answer_to_a_reminder_are_not_even_pulled(
    fake: FakeClock, attack: Attack
) -> None:
    double = PartsDouble(toy_client_app(), SITES, (Hostile(2, attack),), fake.clock())
    grid = parts_grid(double)
    messages = [
        Message(_instruction(), node_id, records.TRAIN) for node_id in double.get_node_ids()
    ]
    late = LateReplies()
    late.expect(dict(zip(grid.push_messages(messages), "abc", strict=True)), 1)
    assert late.drop(grid, 2) == 3
    assert len(double.confirmed) == 3
    assert double.longest < 1000


@pytest.mark.parametrize(
    "pair",
    [(records.TRAIN, records.TRAIN), (records.TRAIN, records.EVALUATE)],
    ids=["two-replies", "reply-and-evaluation"],
)
def test_a_site_that_does_it_twice_is_out_for_the_rest_of_the_run(
    tmp_path: Path, fake: FakeClock, pair: tuple[str, str]
) -> None:
    hostile = [Hostile(2, custom_class, {1}, pair[0])]
    hostile += [Hostile(2, custom_class, {1 if pair[0] != pair[1] else 2}, pair[1])]
    federation, double = attacked(tmp_path, fake, *hostile, **{"num-rounds": 5})
    lines = lines_of(federation)
    out_after = 1 if pair[0] != pair[1] else 2
    assert all(line["excluded"] == ["c"] for line in lines[out_after:])
    alarms = [(line["round"], alarm) for line in lines for alarm in line["alarms"] if "c " in alarm]
    assert [number for number, alarm in alarms if alarm.startswith("c has sent")] == [out_after]
    asked = [
        message.content.config_records[records.CONFIG][records.ROUND]
        for message in double.sent
        if double.nodes[message.metadata.dst_node_id][0] == 2
        and message.metadata.message_type != records.QUERY
    ]
    assert max(asked) == out_after


def test_label_counts_whose_sum_no_integer_holds_are_that_nodes_refusal(
    tmp_path: Path, fake: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def overflowing(reply: Message) -> Upload:
        described = reply.content.config_records[records.CLIENT]
        described[records.CLIENT_LABELS] = [2**63 - 1] * 10
        return upload_of(reply)

    own = {"data.source": "npz", "data.image-shape": "1x8x8", "data.num-classes": 10}
    hostile = Hostile(2, overflowing, message_type=records.QUERY)
    with caplog.at_level(logging.WARNING, "moonflower"):
        federation, _ = attacked(tmp_path, fake, hostile, **own)
    assert [line["participants"] for line in lines_of(federation)] == [["a", "b"]] * ROUNDS
    assert "whole numbers from 0 to 2**40" in caplog.text

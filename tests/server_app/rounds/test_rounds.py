"""Clients that fail, come late or send what stands out, over several rounds of toy clients."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message

from common import records
from server_app.rounds.federation import ClientFailedError
from server_app.rounds.loop import play_round, run_rounds
from tests.in_process.grid import (
    FakeClock,
    Fault,
    InProcessGrid,
    fails,
    late,
    never,
    with_nan,
)
from tests.server_app.rounds.test_loop import Build, build, lines_of, moved, sent
from tests.server_app.toy import evaluation_of, named, node_of

__all__ = ["build"]  # a fixture


def asked(federation: Any, server_round: int, kind: str = records.TRAIN) -> list[str]:
    """Return who was sent an instruction of a round, sorted."""
    return sorted(
        federation.grid.nodes[message.metadata.dst_node_id][1]["name"]
        for message in sent(federation, kind)
        if message.content.config_records[records.CONFIG][records.ROUND] == server_round
    )


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the log of Moonflower's own lines."""
    caplog.set_level(logging.INFO, logger="moonflower")
    return caplog


@pytest.mark.parametrize("change", [fails("no disk"), with_nan, never])
def test_a_client_that_failed_is_left_out_for_as_many_rounds_as_set(
    build: Build, change: Any
) -> None:
    federation = build(
        named("a", "b", "c"),
        Fault(1, change, rounds={1}),
        **{"server.exclude-rounds": 2, "num-rounds": 4},
    )
    run_rounds(federation)
    assert [asked(federation, n) for n in (1, 2, 3, 4)] == [
        ["a", "b", "c"],
        ["a", "c"],
        ["a", "c"],
        ["a", "b", "c"],
    ]
    assert asked(federation, 2, records.EVALUATE) == ["a", "c"]
    assert [line["excluded"] for line in lines_of(federation)] == [[], ["b"], ["b"], []]


def test_by_default_a_client_that_failed_is_tried_again_in_the_next_round(build: Build) -> None:
    federation = build(named("a", "b"), Fault(1, fails("no disk"), rounds={1}))
    run_rounds(federation)
    assert asked(federation, 2) == ["a", "b"]


def test_nobody_is_left_out_where_too_few_would_be_left(build: Build) -> None:
    # b fails in round 1. In round 2 it is left out, and c fails: the second attempt takes b. In
    # round 3 only a would be left, of the 2 that are needed.
    federation = build(
        named("a", "b", "c"),
        Fault(1, with_nan, rounds={1}),
        Fault(2, with_nan, rounds={2}),
        **{"server.exclude-rounds": 5, "server.min-replies": 2, "num-rounds": 3},
    )
    run_rounds(federation)
    assert asked(federation, 2) == ["a", "a", "b", "c", "c"]
    assert asked(federation, 3) == ["a", "b", "c"]
    assert [line["participants"] for line in lines_of(federation)] == [
        ["a", "c"],
        ["a", "b"],
        ["a", "b", "c"],
    ]
    assert [line["excluded"] for line in lines_of(federation)] == [[], [], []]


@pytest.mark.parametrize(
    ("change", "reason"),
    [(fails("no disk"), "b: no disk"), (with_nan, "b: array"), (never, "b: no reply within")],
)
def test_with_policy_stop_the_first_failure_ends_the_run_with_its_reason(
    build: Build, change: Any, reason: str
) -> None:
    federation = build(
        named("a", "b", "c"),
        Fault(1, change, rounds={2}),
        **{"server.failure-policy": "stop", "num-rounds": 3},
    )
    with pytest.raises(ClientFailedError, match="failure-policy is stop") as caught:
        run_rounds(federation)
    assert reason in str(caught.value)
    assert str(federation.tracker.folder) in str(caught.value)
    assert [line["round"] for line in lines_of(federation)] == [1]


def test_with_policy_stop_nobody_is_waited_for_after_a_failure(
    build: Build, fake: FakeClock
) -> None:
    faults = [Fault(0, fails("no disk")), Fault(1, late(500))]
    federation = build(named("a", "b"), *faults, **{"server.failure-policy": "stop"})
    with pytest.raises(ClientFailedError, match="a: no disk"):
        run_rounds(federation)
    assert fake.time - 1000 < 1


def test_a_late_reply_is_dropped_counted_and_does_not_hold_up_the_next_round(
    build: Build, fake: FakeClock, log: Any
) -> None:
    federation = build(
        named("a", "b", "c"),
        Fault(2, late(20), rounds={1}),
        **{"server.straggler-grace": 7.0, "num-rounds": 3},
    )
    first = play_round(federation, 1)
    fake.time += 30
    second = play_round(federation, 2)
    third = play_round(federation, 3)
    assert first.training.missing == ("c",)
    assert [r.training.dropped for r in (first, second, third)] == [0, 1, 0]
    assert "dropped 1 late replies: c (round 1)" in log.messages


def test_a_short_round_is_not_rounded_up_to_seconds(build: Build, fake: FakeClock) -> None:
    federation = build(named("a", "b"), *[Fault(n, late(0.3)) for n in (0, 1)])
    report = play_round(federation, 1)
    assert 0.3 <= report.seconds["train"] <= 0.4


def moves(value: float) -> Any:
    """Return a fault: every number of the reply's arrays is ``value`` more."""

    def change(reply: Message) -> Message:
        arrays = reply.content.array_records[records.ARRAYS]
        reply.content[records.ARRAYS] = ArrayRecord(
            {name: Array(np.asarray(a.numpy() + np.float32(value))) for name, a in arrays.items()}
        )
        return reply

    return change


def test_a_change_beyond_the_limit_is_refused_and_counted(build: Build) -> None:
    federation = build(named("a", "b", "c"), Fault(1, moves(999.0)))
    before = federation.arrays
    weights = sum(array.numpy().size for array in before.values())
    one = weights**0.5  # everybody moves each weight by 1
    federation = _again(federation, build, **{"server.max-update-norm": one * 1.01})
    report = play_round(federation, 1)
    after = federation.arrays
    assert moved(before, after) == pytest.approx(1.0, rel=1e-4)
    assert list(report.training.refused) == ["b"]
    assert report.record()["update-norms"] == {
        "a": pytest.approx(one, rel=1e-4),
        "c": pytest.approx(one, rel=1e-4),
    }
    assert report.update_norm == pytest.approx(one, rel=1e-4)


def test_or_clipped_and_counted(build: Build) -> None:
    federation = build(named("a", "b", "c"), Fault(1, moves(999.0)))
    before = federation.arrays
    one = sum(array.numpy().size for array in before.values()) ** 0.5
    federation = _again(
        federation,
        build,
        **{"server.max-update-norm": 4 * one, "server.norm-policy": "clip"},
    )
    report = play_round(federation, 1)
    after = federation.arrays
    assert moved(before, after) == pytest.approx((1 + 4 + 1) / 3, rel=1e-4)
    assert report.record()["clipped"] == ["b"]
    assert report.record()["update-norms"]["b"] == pytest.approx(1000 * one, rel=1e-4)


def _again(federation: Any, build: Build, **overrides: Any) -> Any:
    folder: Path = federation.tracker.folder
    folder.rename(folder.with_name("first"))
    return build(named("a", "b", "c"), Fault(1, moves(999.0)), **overrides)


def test_replies_that_wait_on_disk_give_the_same_model(build: Build) -> None:
    configs = [{"name": n, "step": s, "examples": 3} for n, s in [("a", 0.1), ("b", 0.7)]]
    federation = build(configs)
    before = federation.arrays
    play_round(federation, 1)
    in_memory = federation.arrays
    federation.tracker.folder.rename(federation.tracker.folder.with_name("first"))
    federation = build(configs, **{"server.replies-in-memory-mb": 0})
    report = play_round(federation, 1)
    on_disk = federation.arrays
    assert {n: a.data for n, a in on_disk.items()} == {n: a.data for n, a in in_memory.items()}
    evaluated = records.size_in_bytes([Message(evaluation_of(5), 1, records.EVALUATE)])
    assert report.bytes_received == (sum(len(a.data) for a in before.values()) + evaluated) * 2


def test_the_order_in_which_replies_arrive_changes_no_bit(build: Build) -> None:
    # Float32 sums of these steps, weighted by 3, 5 and 7 of 15, depend on their order.
    steps = {"a": (0.1, 3), "b": (0.7, 5), "c": (1e-3, 7)}
    configs = [{"name": n, "step": step, "examples": k} for n, (step, k) in steps.items()]
    grace = {"server.straggler-grace": 100.0}
    federation = build(configs, **grace)
    found = []
    for delays in [(1, 2, 3), (3, 2, 1), (2, 3, 1)]:
        faults = [Fault(number, late(float(delay))) for number, delay in enumerate(delays)]
        folder: Path = federation.tracker.folder
        folder.rename(folder.with_name(f"before-{delays}"))
        federation = build(configs, *faults, **grace)
        report = play_round(federation, 1)
        after = federation.arrays
        assert len(report.training.participants) == 3
        found.append({name: array.data for name, array in after.items()})
    assert found[0] == found[1] == found[2]


def test_a_client_that_claims_more_examples_than_it_had_is_refused(build: Build) -> None:
    def claims(reply: Message) -> Message:
        reply.content.metric_records[records.METRICS][records.NUM_EXAMPLES] = 6
        return reply

    federation = build([*named("a"), *named("b", step=100.0)], Fault(1, claims))
    before = federation.arrays
    report = play_round(federation, 1)
    after = federation.arrays
    assert moved(before, after) == pytest.approx(1.0)
    assert "it had 5 when it was asked" in report.training.refused["b"]


def test_a_client_that_counts_more_right_answers_than_examples_is_left_out(build: Build) -> None:
    federation = build([*named("a", correct=4), *named("b", correct=11)])
    report = play_round(federation, 1)
    assert report.clients is not None
    assert report.clients["per-client"] == {"a": 0.4}
    assert report.evaluating is not None
    assert "right answers" in report.evaluating.refused["b"]


def test_what_looks_wrong_is_warned_of_and_noted(build: Build, log: Any) -> None:
    federation = build([*named("a"), *named("b", step=0.0)], **{"num-rounds": 1})
    run_rounds(federation)
    (line,) = lines_of(federation)
    (alarm,) = line["alarms"]
    assert alarm.startswith("b sent back the model as it was")
    assert f"round 1: {alarm}" in log.messages


def test_a_model_that_stands_still_is_noted(build: Build) -> None:
    federation = build(named("a", "b", step=0.0), **{"num-rounds": 1})
    run_rounds(federation)
    (line,) = lines_of(federation)
    assert line["update-norm"] == 0
    assert any("global model has not changed" in alarm for alarm in line["alarms"])


@pytest.mark.parametrize(
    ("loss", "reason"), [(1.7e308, "allowed is up to 3.4e+38"), (-1.0, "is at least 0")]
)
def test_a_loss_that_is_none_is_left_out_of_the_evaluation(
    build: Build, loss: float, reason: str
) -> None:
    # The sum of two that a float64 just holds would have ended the run.
    def claims(reply: Message) -> Message:
        reply.content.metric_records[records.METRICS][records.LOSS] = loss
        return reply

    faults = [Fault(node, claims, message_type=records.EVALUATE) for node in (1, 2)]
    federation = build(named("a", "b", "c"), *faults)
    report = play_round(federation, 1)
    assert report.clients is not None
    assert list(report.clients["per-client"]) == ["a"]
    assert report.evaluating is not None
    assert reason in report.evaluating.refused["b"]


def test_what_waits_on_disk_is_refused_for_being_unlike_the_others(build: Build) -> None:
    federation = build(
        named("a", "b", "c", "d"), Fault(1, moves(1e6)), **{"server.replies-in-memory-mb": 0}
    )
    before = federation.arrays
    report = play_round(federation, 1)
    after = federation.arrays
    assert "more than server.norm-multiple (1000) times" in report.training.refused["b"]
    assert moved(before, after) == pytest.approx(1.0)


def test_a_client_that_left_after_training_was_gone_before_it_was_asked(
    build: Build, log: Any
) -> None:
    def leaves(reply: Message) -> Message:
        assert isinstance(federation.grid, InProcessGrid)
        federation.grid.disconnect(node_of(federation.grid, "b"))
        return reply

    federation = build(named("a", "b"), Fault(1, leaves))
    report = play_round(federation, 1)
    assert report.training.participants == ("a", "b")
    assert report.evaluating is not None
    assert report.evaluating.missing == ("b",)
    assert "b: it was gone before it was asked" in log.text

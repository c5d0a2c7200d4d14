"""A round that ruins the model is played again without the reply that is most unlike the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message

from common import records
from server_app.errors import PERMANENT
from server_app.rounds.federation import ClientFailedError, DivergedError
from tests.in_process.grid import FakeClock, Fault, never, run_in_process
from tests.in_process.hostile import arrays_of, weights_3e38
from tests.in_process.test_resume import Killed, assert_same, kill_at, weights

HOSTILE = "client-0001"
BASE = {
    "algorithm": "fedavg",
    "num-rounds": 3,
    "train.local-epochs": 1,
    "data.fraction": 0.3,
    "server.straggler-grace": 1.0,
    "server.learning-rate": 0.3,
    "fedgen.server-steps": 3,
    "model.name": "fedgen-cnn",
    "experiment": "exp",
}
RUNS = {
    "fedavg": {},
    "moon": {"algorithm": "moon", "moon.buffer-size": 2, "server.aggregator": "fedadam"},
    "fedgen": {"algorithm": "fedgen", "server.aggregator": "fedyogi"},
    "moon+fedgen": {"algorithm": "moon+fedgen", "server.aggregator": "fedavgm"},
    "int8": {"algorithm": "moon", "wire.dtype": "int8"},
    "scaffold": {"algorithm": "scaffold", "train.momentum": 0.0},
    "feddyn": {"algorithm": "feddyn"},
    "local-buffers": {"algorithm": "fedgen", "model.batch-norm-buffers": "local"},
}


def run(
    tmp_path: Path, change: Any, rounds: Sequence[int] = (2,), clients: int = 3, **overrides: Any
) -> Path:
    """Let client 1 change its replies in some rounds."""
    return run_in_process(
        BASE | overrides,
        clients,
        tmp_path,
        faults=[Fault(1, change, rounds)],
        clock=FakeClock().clock(),
    )


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_weights(folder: Path, expected: Path) -> None:
    """Compare two final models bit for bit."""
    one, other = weights(folder, "final"), weights(expected, "final")
    assert all(torch.equal(one[name], other[name]) for name in other)


def ruined(reply: Message) -> Message:
    """Return the reply with weights that a mean survives and a forward pass does not.

    Of an int8 reply it is the scales that are so large.
    """
    arrays = arrays_of(reply)
    for name, array in arrays.items():
        if name == records.SCALES:
            arrays[name] = Array(np.full_like(array.numpy(), 1e34))
        elif name.endswith(("weight", "bias")) and array.dtype == "float32":
            arrays[name] = Array(np.full_like(array.numpy(), 1e30))
    reply.content[records.ARRAYS] = ArrayRecord(arrays)
    return reply


@pytest.mark.parametrize("attack", [weights_3e38, ruined])
@pytest.mark.parametrize("run_of", sorted(RUNS))
def test_what_the_first_playing_left_behind_changes_no_bit(
    tmp_path: Path, run_of: str, attack: Callable[[Message], Message]
) -> None:
    if run_of == "int8":
        attack = ruined  # what is no int8 is refused at once
    # Or the running statistics of weights_3e38 would be refused beside those of the other two.
    overrides = {**RUNS[run_of], "server.statistics-multiple": 0.0}
    folder = run(tmp_path / "attacked", attack, **overrides)
    expected = run(tmp_path / "silent", never, **overrides)
    first, second, third = lines_of(folder)
    assert first["taken-back"] is None
    assert third["taken-back"] is None
    assert second["taken-back"]["client"] == HOSTILE
    assert second["participants"] == ["client-0000", "client-0002"]
    assert list(second["refused"]) == [HOSTILE]
    assert third["participants"] == ["client-0000", HOSTILE, "client-0002"]
    assert_same_weights(folder, expected)


POINTS = ["server_app.rounds.loop.load_strategy_state", "server_app.rounds.phases.train"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_between_the_two_playings_the_results_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, after: bool
) -> None:
    overrides = RUNS["moon+fedgen"]
    undisturbed = run(tmp_path / "undisturbed", ruined, **overrides)
    # Trained are round 1, round 2, and round 2 again.
    call = 1 if "load" in point else 3
    with monkeypatch.context() as patch:
        kill_at(patch, point, call, after=after)
        with pytest.raises(Killed):
            run(tmp_path / "killed", ruined, **overrides)
    folder = run(tmp_path / "killed", ruined, resume=True, **overrides)
    assert [line["taken-back"] is not None for line in lines_of(folder)] == [False, True, False]
    assert_same(folder, undisturbed)


def test_it_is_said_in_the_log_in_the_line_of_the_round_and_among_its_alarms(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="moonflower")
    (_, line, _) = lines_of(run(tmp_path, ruined))
    said = f"round 2 is taken back and played again without {HOSTILE}"
    assert any(said in message for message in caplog.messages)
    assert line["taken-back"]["why"] == "its loss on the server's test set is not finite"
    assert line["taken-back"]["norm"] > 1e30
    assert "most unlike the others" in line["refused"][HOSTILE]
    assert any(HOSTILE in alarm for alarm in line["alarms"])
    assert len(line["update-norms"]) == 2


def test_a_round_that_is_not_evaluated_is_judged_by_a_batch_of_the_test_set(tmp_path: Path) -> None:
    overrides = {"server.evaluate-every": 3, "server.fraction-evaluate": 0.0}
    folder = run(tmp_path / "attacked", ruined, **overrides)
    second = lines_of(folder)[1]
    assert second["global"] is None
    assert second["taken-back"]["client"] == HOSTILE
    assert_same_weights(folder, run(tmp_path / "silent", never, **overrides))


def no_loss(reply: Message) -> Message:
    """Return an evaluate reply whose loss is NaN."""
    reply.content.metric_records[records.METRICS][records.LOSS] = float("nan")
    return reply


class TestWithoutATestSet:
    """The clients that evaluated decide."""

    @pytest.fixture(autouse=True)
    def no_test_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("server_app.app.load_server_test_set", lambda *_: None)

    def test_a_round_is_taken_back_if_most_find_no_finite_loss(self, tmp_path: Path) -> None:
        folder = run(tmp_path / "attacked", ruined)
        second = lines_of(folder)[1]
        assert second["taken-back"]["client"] == HOSTILE
        assert second["taken-back"]["why"].startswith("3 of the 3 clients that evaluated")
        assert_same_weights(folder, run(tmp_path / "silent", never))

    def test_one_client_that_says_so_is_not_believed(self, tmp_path: Path) -> None:
        folder = run_in_process(
            BASE, 3, tmp_path, faults=[Fault(1, no_loss, message_type=records.EVALUATE)]
        )
        for line in lines_of(folder):
            assert line["taken-back"] is None
            assert any(f"data of {HOSTILE}" in alarm for alarm in line["alarms"])

    def test_a_round_that_nobody_evaluates_is_not_judged(self, tmp_path: Path) -> None:
        # What it did shows in the next: honest training of such a model gives NaN.
        with pytest.raises(DivergedError, match=r"round 3 failed twice(.|\n)*diverged"):
            run(tmp_path, ruined, **{"server.evaluate-every": 3})


def test_with_policy_stop_it_ends_the_run_as_any_refused_reply_does(tmp_path: Path) -> None:
    with pytest.raises(ClientFailedError, match=f"{HOSTILE}: the round was taken back"):
        run(tmp_path, ruined, **{"server.failure-policy": "stop", "server.fraction-evaluate": 0.0})


@pytest.mark.parametrize(("clients", "fewest"), [(3, 3), (2, 2)])
def test_where_nobody_can_be_spared_the_run_ends(tmp_path: Path, clients: int, fewest: int) -> None:
    with pytest.raises(DivergedError, match="round 2 made a useless model") as caught:
        run(tmp_path, ruined, clients=clients, **{"server.min-replies": fewest})
    assert str(caught.value).endswith(PERMANENT)


def test_the_others_of_a_sample_stay_those_that_were_drawn(tmp_path: Path) -> None:
    # Six of eight train. With four or more replies the multiple would refuse it: switched off.
    overrides = {"server.fraction-train": 0.75, "server.norm-multiple": 0.0}
    folder = run(tmp_path / "attacked", ruined, range(1, 4), 8, **overrides)
    silent = run(tmp_path / "silent", never, range(1, 4), 8, **overrides)
    for line, expected in zip(lines_of(folder), lines_of(silent), strict=True):
        assert line["participants"] == expected["participants"]
    assert_same_weights(folder, silent)


def test_where_all_diverge_the_run_ends_at_once_and_names_the_learning_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="moonflower")
    with pytest.raises(DivergedError, match=r"train.learning-rate \(it is 10000\)") as caught:
        run_in_process(BASE | {"train.learning-rate": 1e4, "model.name": "mlp"}, 3, tmp_path)
    assert "round 1" in str(caught.value)
    assert str(caught.value).endswith(PERMANENT)
    assert not any("round 1/3" in message for message in caplog.messages)

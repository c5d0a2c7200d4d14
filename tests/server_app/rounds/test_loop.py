"""Rounds of toy clients that add a constant to every weight."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg, Strategy

from common import records
from common.data import ExampleSet, data_spec
from common.models import build_model, load_facts, load_model
from server_app.clients.gather import gather
from server_app.experiment.checkpoint import newest_checkpoint
from server_app.experiment.tracker import Tracker
from server_app.rounds.federation import DivergedError, Federation, RoundFailedError
from server_app.rounds.loop import play_round, run_rounds
from server_app.rounds.playing import Stopwatch, play
from tests.in_process.grid import (
    FakeClock,
    Fault,
    InProcessGrid,
    fails,
    late,
    never,
    with_nan,
)
from tests.server_app.toy import evaluation_of, named, toy_client_app
from tests.settings import make_settings

Build = Callable[..., Federation]


def plain() -> FedAvg:
    """Return FedAvg that takes whom it is shown."""
    return FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)


@pytest.fixture
def build(fake: FakeClock, tmp_path: Path) -> Build:
    """Return a maker of federations of toy clients."""

    def make(
        configs: list[dict[str, Any]],
        *faults: Fault,
        strategy: Strategy | None = None,
        test_set: ExampleSet | None = None,
        **overrides: Any,
    ) -> Federation:
        base = {
            "algorithm": "fedavg",
            "server.min-clients": len(configs),
            "num-rounds": 2,
            "experiment": "exp",
        }
        settings = make_settings(**base | overrides)
        grid = InProcessGrid(toy_client_app(), configs, {}, faults, fake.clock())
        roster = gather(grid, settings, fake.clock())
        spec = data_spec(settings.data)
        model = build_model(settings.model, spec, settings.seed)
        tracker = Tracker(tmp_path / "output" / "exp", settings, spec)
        tracker.begin(roster.clients)
        return Federation(
            settings, grid, roster, strategy or plain(), model, test_set, tracker, fake.clock()
        )

    return make


def moved(before: ArrayRecord, after: ArrayRecord) -> float:
    """Return by how much the weights grew, the same for all of them."""
    steps = np.concatenate([(after[n].numpy() - before[n].numpy()).ravel() for n in before])
    assert steps.std() < 1e-5
    return float(steps.mean())


def lines_of(federation: Federation) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    text = (federation.tracker.folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def sent(federation: Federation, kind: str) -> list[Message]:
    """Return the messages of one type, in the order of sending."""
    grid = federation.grid
    assert isinstance(grid, InProcessGrid)
    return [message for message in grid.sent if message.metadata.message_type == kind]


def test_the_model_is_the_mean_weighted_by_examples_round_after_round(build: Build) -> None:
    configs = [
        {"name": "a", "step": 1.0, "examples": 10},
        {"name": "b", "step": 4.0, "examples": 5},
    ]
    federation = build(configs)
    before = federation.arrays
    run_rounds(federation)
    after = federation.arrays
    # (10 * 1 + 5 * 4) / 15 = 2 in each of two rounds
    assert moved(before, after) == pytest.approx(4.0, rel=1e-5)
    first, second = lines_of(federation)
    assert (first["round"], second["round"]) == (1, 2)
    assert first["participants"] == ["a", "b"]
    assert first["train"]["loss"] == pytest.approx(2.0)
    assert first["train"]["num-examples"] == 15
    size = sum(len(array.data) for array in before.values())
    counts = 2 * records.size_in_bytes([Message(evaluation_of(5), 1, records.EVALUATE)])
    # Trained and evaluated.
    assert first["bytes"] == {"sent": 4 * size, "received": 2 * size + counts}


def test_a_run_that_starts_later_does_only_the_rounds_that_are_left(build: Build) -> None:
    federation = build(named("a", "b"), **{"num-rounds": 5})
    before = federation.arrays
    run_rounds(federation, first_round=4)
    assert moved(before, federation.arrays) == pytest.approx(2.0)
    assert [line["round"] for line in lines_of(federation)] == [4, 5]


def test_the_final_model_is_saved_as_it_was_aggregated(build: Build) -> None:
    federation = build(named("a", "b"))
    run_rounds(federation)
    after = federation.arrays
    saved = load_model(federation.tracker.folder / "final").state_dict()
    for name, tensor in records.to_tensors(after).items():
        assert torch.equal(saved[name], tensor), name


def test_every_instruction_names_its_round_and_experiment(build: Build) -> None:
    federation = build(named("a"), **{"num-rounds": 3})
    run_rounds(federation)
    configs = [m.content.config_records[records.CONFIG] for m in sent(federation, records.TRAIN)]
    assert [config[records.ROUND] for config in configs] == [1, 2, 3]
    assert {config[records.EXPERIMENT] for config in configs} == {"exp"}


def test_a_bad_reply_is_named_and_does_not_touch_the_model(build: Build) -> None:
    configs = [*named("a", "c", step=1.0), *named("b", step=100.0)]
    federation = build(configs, Fault(2, with_nan, rounds={1}))
    before = federation.arrays
    report = play_round(federation, 1)
    after = federation.arrays
    assert moved(before, after) == pytest.approx(1.0)
    assert report.training.participants == ("a", "c")
    assert "NaN" in report.training.refused["b"]


def test_a_node_that_never_answers_costs_the_grace_and_is_named_missing(
    build: Build, fake: FakeClock
) -> None:
    federation = build(
        named("a", "b", "c"), Fault(1, never, rounds={1}), **{"server.straggler-grace": 7.0}
    )
    report = play_round(federation, 1)
    assert report.training.missing == ("b",)
    assert report.seconds["train"] == pytest.approx(7.0)


def test_the_late_reply_of_a_round_does_not_count_in_the_next(build: Build) -> None:
    configs = [*named("a", "b", step=1.0), *named("c", step=100.0)]
    federation = build(configs, Fault(2, late(8.0), rounds={1}), **{"server.straggler-grace": 7.0})
    before = federation.arrays
    first = play_round(federation, 1)
    middle = federation.arrays
    federation.clock.sleep(20)
    second = play_round(federation, 2)
    after = federation.arrays
    assert first.training.missing == ("c",)
    assert moved(before, middle) == pytest.approx(1.0)
    assert second.training.participants == ("a", "b", "c")
    assert moved(middle, after) == pytest.approx(34.0, rel=1e-4)  # (1 + 1 + 100) / 3


def test_too_few_replies_are_tried_again_with_all_clients(build: Build) -> None:
    # Two of four are chosen; in the first attempt everybody fails.
    failing = {"left": 2}

    def fails_first(reply: Message) -> Message:
        if failing["left"]:
            failing["left"] -= 1
            return fails("disk full")(reply)
        return reply

    federation = build(
        named("a", "b", "c", "d"),
        *[Fault(n, fails_first) for n in range(4)],
        **{"server.fraction-train": 0.5, "server.min-replies": 2},
    )
    report = play_round(federation, 1)
    assert report.training.participants == ("a", "b", "c", "d")
    assert len(sent(federation, records.TRAIN)) == 2 + 4


def test_a_round_that_fails_twice_stops_the_run_and_names_every_reason(build: Build) -> None:
    federation = build(
        named("a", "b", "c"),
        Fault(0, fails("CUDA out of memory"), rounds={2}),
        Fault(1, with_nan, rounds={2}),
        Fault(2, never, rounds={2}),
        **{"server.round-deadline": 30.0},
    )
    with pytest.raises(RoundFailedError) as caught:
        run_rounds(federation)
    message = str(caught.value)
    assert "round 2 failed twice: 0 usable replies, server.min-replies is 1" in message
    assert "a: CUDA out of memory" in message
    assert "NaN or infinity" in message
    assert "c: no reply within 30 s" in message
    assert str(federation.tracker.folder) in message
    assert [line["round"] for line in lines_of(federation)] == [1]


def test_a_federation_without_clients_fails_instead_of_waiting_for_ever(
    build: Build, fake: FakeClock
) -> None:
    federation = build(named("a"))
    assert isinstance(federation.grid, InProcessGrid)
    federation.grid.nodes.clear()
    with pytest.raises(RoundFailedError, match="no client is connected"):
        run_rounds(federation)
    assert fake.time - 1000 < 130  # twice server.start-timeout, and the start


class Poisonous(FedAvg):
    """Aggregates to NaN in round 2."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round == 2 and arrays is not None:
            tensors = records.to_tensors(arrays)
            next(iter(tensors.values())).view(-1)[0] = float("inf")
            arrays = records.to_arrays(tensors)
        return arrays, metrics


def test_a_model_that_is_not_finite_stops_the_run_before_it_is_saved(build: Build) -> None:
    strategy = Poisonous(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    federation = build(named("a", "b"), strategy=strategy)
    with pytest.raises(DivergedError, match=r"round 2(.|\n)*learning-rate"):
        run_rounds(federation)
    assert [line["round"] for line in lines_of(federation)] == [1]
    assert all(
        torch.isfinite(p).all() for p in load_model(federation.tracker.folder / "best").parameters()
    )
    assert not (federation.tracker.folder / "final").exists()
    checkpoint = newest_checkpoint(federation.tracker.folder / "checkpoints")
    assert checkpoint is not None
    now = federation.model.state_dict()
    assert all(torch.equal(now[name], array) for name, array in checkpoint.arrays.items())


def test_a_model_that_is_useless_is_not_the_global_model(build: Build) -> None:
    federation = build(
        named("a", "b", step=3e38),
        test_set=ExampleSet(torch.ones(4, 1, 8, 8), torch.tensor([0, 0, 1, 2])),
        **{"server.norm-multiple": 0.0, "server.min-replies": 1},
    )
    before = federation.arrays
    playing = play(federation, 1, Stopwatch(federation.clock.now))
    assert "test set" in playing.useless
    assert moved(before, federation.arrays) == 0


def test_nor_is_one_that_is_finite_only_until_it_has_the_models_precision(build: Build) -> None:
    class Doubled(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            tensors = {name: t.double() + 1e300 for name, t in records.to_tensors(arrays).items()}
            return records.to_arrays(tensors), metrics

    federation = build(
        named("a"), strategy=Doubled(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    )
    with pytest.raises(DivergedError, match="round 1"):
        run_rounds(federation)
    assert not (federation.tracker.folder / "checkpoints").exists()


def test_a_strategy_that_makes_no_model_stops_the_run(build: Build) -> None:
    class Empty(FedAvg):
        def aggregate_train(self, *args: Any) -> tuple[None, None]:
            return None, None

    strategy = Empty(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    federation = build(named("a"), strategy=strategy)
    with pytest.raises(RoundFailedError, match="made no model of 1 replies"):
        run_rounds(federation)


def test_clients_evaluate_every_nth_round_and_in_the_last(build: Build) -> None:
    federation = build(
        [*named("a", correct=9), *named("b", correct=4)],
        **{"num-rounds": 5, "server.evaluate-every": 2},
    )
    run_rounds(federation)
    lines = lines_of(federation)
    assert [line["round"] for line in lines if line["clients"]] == [2, 4, 5]
    clients = lines[-1]["clients"]
    assert clients["mean"] == pytest.approx(0.65)
    assert clients["worst"] == {"name": "b", "accuracy": 0.4}
    assert lines[-1]["evaluation"]["participants"] == ["a", "b"]
    assert lines[0]["evaluation"] is None


def test_patience_ends_a_run_early_with_a_final_model(build: Build) -> None:
    # The toy clients always answer 5 of 10: no evaluation after the first is better.
    federation = build(
        named("a", "b"),
        **{"num-rounds": 9, "server.patience": 2, "server.stop-metric": "clients-score"},
    )
    run_rounds(federation)
    assert [line["round"] for line in lines_of(federation)] == [1, 2, 3]
    assert load_facts(federation.tracker.folder / "final")["round"] == 3


def test_fraction_evaluate_zero_asks_nobody(build: Build) -> None:
    federation = build(named("a", "b"), **{"server.fraction-evaluate": 0.0})
    run_rounds(federation)
    assert sent(federation, records.EVALUATE) == []
    assert lines_of(federation)[0]["clients"] is None


def test_a_client_that_can_t_evaluate_does_not_stop_the_round(build: Build) -> None:
    fault = Fault(0, fails("no data"), message_type=records.EVALUATE)
    federation = build([*named("a"), *named("b", correct=4)], fault)
    report = play_round(federation, 1)
    assert report.clients is not None
    assert report.clients["per-client"] == {"b": 0.4}
    assert report.evaluating is not None
    assert report.evaluating.refused == {"a": "no data"}


def test_the_server_evaluates_the_new_global_model(build: Build) -> None:
    x = torch.zeros(4, 1, 8, 8)
    federation = build(named("a"), test_set=ExampleSet(x, torch.tensor([0, 0, 1, 2])))
    report = play_round(federation, 1)
    answer = int(federation.model(x[:1]).argmax())
    expected = {0: 0.5, 1: 0.25, 2: 0.25}.get(answer, 0.0)
    assert report.global_model is not None
    assert report.global_model["accuracy"] == expected


def test_a_strategy_sees_replies_in_the_order_of_names(build: Build) -> None:
    seen: list[list[float]] = []

    class Watching(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            replies = list(replies)
            seen.append([m.content["metrics"]["loss"] for m in replies])  # type: ignore[index]
            return super().aggregate_train(server_round, replies)

    strategy = Watching(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    configs = [{"name": name, "step": step} for name, step in [("c", 3.0), ("a", 1.0), ("b", 2.0)]]
    federation = build(configs, strategy=strategy)
    play_round(federation, 1)
    assert seen == [[1.0, 2.0, 3.0]]


def test_integers_in_the_model_stay_integers(build: Build) -> None:
    federation = build(named("a", "b"), **{"model.name": "fedgen-cnn", "model.norm": "batch"})
    before = federation.arrays
    play_round(federation, 1)
    after = federation.arrays
    assert {n: a.dtype for n, a in after.items()} == {n: a.dtype for n, a in before.items()}
    counted = [name for name in after if name.endswith("num_batches_tracked")]
    assert counted
    assert all(after[name].numpy() == 1 for name in counted)


def test_a_client_that_joins_later_trains_from_then_on(build: Build) -> None:
    federation = build(named("a"))
    assert isinstance(federation.grid, InProcessGrid)
    first = play_round(federation, 1)
    federation.grid.connect({"name": "b"})
    second = play_round(federation, 2)
    assert first.training.participants == ("a",)
    assert second.training.participants == ("a", "b")


def test_every_round_is_one_line_in_the_log(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="moonflower")
    federation = build(named("a", "b"))
    run_rounds(federation)
    rounds = [line for line in caplog.messages if line.startswith("round ")]
    assert [line.split("  ")[0] for line in rounds] == ["round 1/2", "round 2/2"]
    assert "2 replies" in rounds[0]

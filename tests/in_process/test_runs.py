"""Both apps end to end on scikit-learn's digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from common import records
from common.config import ALGORITHMS, Settings
from common.data import load_server_test_set
from common.models import SavedModelError, load_facts, load_model
from common.node import Folders
from common.storage import read_tensors
from common.tasks import build_task
from server_app.rounds.federation import RoundFailedError
from tests.in_process.grid import FakeClock, Fault, fails, late, never, run_in_process, with_nan
from tests.settings import make_settings

SHORT = {"num-rounds": 2, "train.local-epochs": 1, "experiment": "exp"}
LOCAL_BUFFERS = {"model.name": "fedgen-cnn", "model.batch-norm-buffers": "local"}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """Return the final model's state dict."""
    return load_model(folder / "final").state_dict()


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Return whether two state dicts have the same bits."""
    return list(one) == list(other) and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "moon+fedgen"])
def test_every_algorithm_trains_evaluates_and_saves(tmp_path: Path, algorithm: str) -> None:
    plain = {"train.momentum": 0.0} if algorithm == "scaffold" else {}
    folder = run_in_process({**SHORT, **plain, "algorithm": algorithm}, 3, tmp_path)
    first, second = lines_of(folder)
    clients = ["client-0000", "client-0001", "client-0002"]
    assert first["participants"] == second["participants"] == clients
    assert list(second["clients"]["per-client"]) == clients
    assert 0 < second["global"]["accuracy"] <= 1
    assert second["refused"] == {}
    assert second["bytes"]["sent"] > 0
    assert set(second["seconds"]) == {
        "join", "train", "aggregate", "evaluate-clients", "evaluate-global", "total",
    }  # fmt: skip
    for name in ("best", "final"):
        assert load_facts(folder / name)["algorithm"] == algorithm
    settings = json.loads((folder / "settings.json").read_text())
    assert [client["name"] for client in settings["clients"]] == clients


def test_evaluating_the_saved_model_gives_the_logged_numbers_exactly(tmp_path: Path) -> None:
    # BatchNorm, so that averaged buffers are part of the claim.
    overrides = {**SHORT, "algorithm": "fedavg", "model.name": "fedgen-cnn"}
    folder = run_in_process(overrides, 3, tmp_path)
    home = tmp_path / "moonflower"
    folders = Folders(data=home / "data", state=home / "state", output=home / "output")
    settings: Settings = make_settings(**overrides)
    test_set = load_server_test_set(settings, folders, torch.device("cpu"))
    assert test_set is not None
    task = build_task(settings)
    scores = task.score(task.measure(load_model(folder / "final"), test_set))
    logged = lines_of(folder)[-1]["global"]
    assert dict(scores.undefined) == logged.pop("undefined", {})
    assert scores.values == logged


def test_one_seed_gives_the_same_bits_twice_and_another_seed_others(tmp_path: Path) -> None:
    overrides = {**SHORT, "algorithm": "moon+fedgen", "server.fraction-train": 0.5}
    one, two, other = (
        weights_of(run_in_process({**overrides, "seed": seed}, 4, tmp_path / name))
        for name, seed in (("one", 3), ("two", 3), ("other", 4))
    )
    assert equal(one, two)
    assert not equal(one, other)


def test_the_learning_rate_of_a_round_is_the_settings_times_its_decay(tmp_path: Path) -> None:
    settings = {**SHORT, "algorithm": "fedavg", "train.learning-rate-decay": 1e-6}
    first, second = lines_of(run_in_process(settings, 2, tmp_path))
    # Gradients are of one size in both rounds; steps are a million times smaller in the second.
    assert 0 < second["update-norm"] < 1e-4 * first["update-norm"]


def test_moon_has_no_negative_in_the_first_round_and_one_from_the_second_on(
    tmp_path: Path,
) -> None:
    folder = run_in_process({**SHORT, "algorithm": "moon"}, 2, tmp_path)
    first, second = (line["train"] for line in lines_of(folder))
    assert first["moon"] == first["sim-previous"] == 0
    assert second["moon"] > 0
    assert second["sim-previous"] != 0
    for client in ("client-0000", "client-0001"):
        kept = (tmp_path / "moonflower" / "state" / "exp" / client).glob("round-*.safetensors")
        assert [path.name for path in sorted(kept)] == [
            "round-000001.safetensors",
            "round-000002.safetensors",
        ]


def test_a_client_that_sends_nan_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = run_in_process(SHORT, 3, tmp_path, faults=[Fault(1, with_nan, rounds={1})])
    first, second = lines_of(folder)
    assert first["participants"] == ["client-0000", "client-0002"]
    assert "NaN" in first["refused"]["client-0001"]
    assert len(second["participants"]) == 3


def test_refused_replies_change_nothing_but_their_own_absence(tmp_path: Path) -> None:
    silent = run_in_process(
        SHORT, 3, tmp_path / "a", faults=[Fault(1, never)], clock=FakeClock().clock()
    )
    poisoned = run_in_process(SHORT, 3, tmp_path / "b", faults=[Fault(1, with_nan)])
    failing = run_in_process(SHORT, 3, tmp_path / "c", faults=[Fault(1, fails("no"))])
    assert equal(weights_of(silent), weights_of(poisoned))
    assert equal(weights_of(silent), weights_of(failing))


def test_a_late_client_is_missing_in_its_round_only(tmp_path: Path, fake: FakeClock) -> None:
    faults = [Fault(2, late(90), rounds={1})]
    folder = run_in_process(SHORT, 3, tmp_path, faults=faults, clock=fake.clock())
    first, second = lines_of(folder)
    assert first["missing"] == ["client-0002"]
    assert second["missing"] == []


def test_a_run_whose_clients_all_fail_ends_with_their_reason_and_keeps_what_it_has(
    tmp_path: Path,
) -> None:
    faults = [Fault(node, fails("disk full"), rounds={2}) for node in range(2)]
    with pytest.raises(
        RoundFailedError, match=r"2 clients \(client-0000, client-0001\): disk full"
    ):
        run_in_process(SHORT, 2, tmp_path, faults=faults)
    folder = tmp_path / "moonflower" / "output" / "exp"
    assert [line["round"] for line in lines_of(folder)] == [1]
    assert load_facts(folder / "best")["round"] == 1


def test_with_local_buffers_the_server_evaluates_nothing_and_clients_do(tmp_path: Path) -> None:
    folder = run_in_process({**SHORT, "algorithm": "fedgen", **LOCAL_BUFFERS}, 2, tmp_path)
    last = lines_of(folder)[-1]
    assert last["global"] is None
    assert last["clients"]["mean"] > 0
    assert load_facts(folder / "best")["criterion"] == "mean client accuracy"
    with pytest.raises(SavedModelError):
        load_model(folder / "final")


def test_local_buffers_never_travel(tmp_path: Path) -> None:
    received = {}
    for buffers in ("averaged", "local"):
        overrides = {**SHORT, **LOCAL_BUFFERS, "model.batch-norm-buffers": buffers}
        folder = run_in_process({**overrides, "algorithm": "fedavg"}, 2, tmp_path / buffers)
        received[buffers] = lines_of(folder)[0]["bytes"]["received"]
    assert received["local"] < received["averaged"]


def test_local_buffers_go_on_from_round_to_round(tmp_path: Path) -> None:
    overrides = {**SHORT, **LOCAL_BUFFERS, "algorithm": "fedavg", "train.local-steps": 3}
    run_in_process(overrides, 2, tmp_path)
    kept = tmp_path / "moonflower" / "state" / "exp" / "client-0000"
    counted = [
        read_tensors(kept / f"round-00000{n}.safetensors")[0][
            "encoder.features.1.num_batches_tracked"
        ].item()
        for n in (1, 2)
    ]
    # 3 steps a round, counted on from the client's own number.
    assert counted == [3, 6]


@pytest.mark.parametrize(
    "aggregator",
    ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedmedian", "fedtrimmedavg", "multikrum"],
)
def test_every_aggregator_of_flower_runs_with_batch_norm(tmp_path: Path, aggregator: str) -> None:
    overrides = {
        **SHORT,
        "algorithm": "fedavg",
        "model.name": "fedgen-cnn",
        "server.aggregator": aggregator,
        "server.learning-rate": 0.1,
    }
    folder = run_in_process(overrides, 3, tmp_path)
    assert len(lines_of(folder)) == 2
    counted = [n for n in weights_of(folder) if n.endswith("num_batches_tracked")]
    assert all(weights_of(folder)[name].dtype == torch.int64 for name in counted)


def test_one_client_alone_is_a_federation(tmp_path: Path) -> None:
    folder = run_in_process({**SHORT, "data.partition": "iid"}, 1, tmp_path)
    assert lines_of(folder)[-1]["clients"]["std"] == 0


def test_evaluation_faults_do_not_touch_training(tmp_path: Path) -> None:
    faults = [Fault(n, fails("no"), message_type=records.EVALUATE) for n in range(2)]
    folder = run_in_process(SHORT, 2, tmp_path, faults=faults)
    last = lines_of(folder)[-1]
    assert last["clients"] is None
    assert last["global"] is not None
    assert set(last["evaluation"]["refused"]) == {"client-0000", "client-0001"}

"""Each client's own model is scored beside the global one (``server.evaluate-personal``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message, MetricRecord

from common import records
from common.data import data_spec, load_client_data
from common.models import build_model
from common.node import Node
from common.storage import read_tensors, write_tensors
from common.tasks import build_task
from tests.in_process.grid import Fault, run_in_process, simulated
from tests.settings import make_settings

CLIENTS = 3
SHORT: dict[str, Any] = {
    "algorithm": "fedavg",
    "experiment": "exp",
    "num-rounds": 2,
    "train.local-epochs": 2,
    "data.fraction": 0.3,
    "data.validation-fraction": 0.3,
    "server.evaluate-personal": True,
}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def accuracies(
    settings: dict[str, Any], home: Path, server_round: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """Return how good each client's file of a round is on its own evaluation examples."""
    monkeypatch.setenv("MOONFLOWER_HOME", str(home / "moonflower"))
    parsed = make_settings(**settings)
    task, found = build_task(parsed), {}
    for config in simulated(CLIENTS):
        node = Node.from_config(config)
        file = home / f"moonflower/state/exp/{node.name}/round-{server_round:06d}.safetensors"
        if not file.exists():
            continue
        model = build_model(parsed.model, data_spec(parsed.data), parsed.seed)
        model.load_state_dict(read_tensors(file)[0])
        scores = task.score(task.measure(model, load_client_data(parsed, node).evaluation))
        found[node.name] = scores.values["accuracy"]
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("model", ["mlp", "fedgen-cnn"])
def test_both_numbers_are_reported_and_personal_is_that_of_the_model_on_the_clients_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    settings = {**SHORT, "model.name": model}
    found = lines(run_in_process(settings, CLIENTS, tmp_path))
    for line in found:
        expected = accuracies(settings, tmp_path, line["round"], monkeypatch)
        assert line["personal"]["per-client"] == expected
        assert line["personal"]["mean"] == pytest.approx(sum(expected.values()) / CLIENTS)
    assert found[-1]["personal"]["per-client"] != found[-1]["clients"]["per-client"]


def test_scoring_own_models_changes_nothing_else(tmp_path: Path) -> None:
    with_own, without = (
        lines(
            run_in_process({**SHORT, "server.evaluate-personal": own}, CLIENTS, tmp_path / str(own))
        )
        for own in (True, False)
    )
    for one, other in zip(with_own, without, strict=True):
        assert one["personal"] is not None
        assert other["personal"] is None
        for key in ("clients", "global", "update-norms"):
            assert one[key] == other[key]


def test_who_has_not_trained_yet_has_no_own_model_and_an_old_one_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SHORT, "server.fraction-train": 0.4, "num-rounds": 4}  # one of three trains
    found = lines(run_in_process(settings, CLIENTS, tmp_path))
    newest: dict[str, float] = {}
    for line in found:
        newest |= accuracies(settings, tmp_path, line["round"], monkeypatch)
        # Files of rounds that were pruned since were scored when they were new.
        assert line["personal"]["per-client"].keys() == {
            name for past in found[: line["round"]] for name in past["participants"]
        }
    assert found[-1]["personal"]["per-client"] == newest
    assert len(found[0]["personal"]["per-client"]) == 1


def doctored(**changes: float) -> Any:
    def change(reply: Message) -> Message:
        reply.content[records.METRICS] = MetricRecord(
            {
                **records.of_type(reply.content, MetricRecord)[records.METRICS],
                **{records.PERSONAL + name.replace("_", "-"): v for name, v in changes.items()},
            }
        )
        return reply

    return change


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"loss": -1.0}, "of its own model:"), ({"num_examples": 7}, "it scored its own model on 7")],
)
def test_sums_of_an_own_model_that_can_not_be_are_refused(
    tmp_path: Path, changes: dict[str, float], reason: str
) -> None:
    faults = [Fault(1, doctored(**changes), message_type=records.EVALUATE)]
    line = lines(run_in_process({**SHORT, "num-rounds": 1}, CLIENTS, tmp_path, faults=faults))[0]
    assert reason in line["evaluation"]["refused"]["client-0001"]
    assert "client-0001" not in line["personal"]["per-client"]
    assert "client-0001" not in line["clients"]["per-client"]


def test_an_own_model_that_has_diverged_costs_its_client_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ruin(reply: Message) -> Message:
        file = tmp_path / "moonflower/state/exp/client-0001/round-000001.safetensors"
        tensors, facts = read_tensors(file)
        huge = {name: torch.full_like(t, 3e38) for name, t in tensors.items()}
        write_tensors(file, huge, facts)
        return reply

    folder = run_in_process({**SHORT, "num-rounds": 1}, CLIENTS, tmp_path, faults=[Fault(1, ruin)])
    line = lines(folder)[0]
    assert sorted(line["personal"]["per-client"]) == ["client-0000", "client-0002"]
    assert len(line["clients"]["per-client"]) == CLIENTS
    assert line["evaluation"]["refused"] == {}

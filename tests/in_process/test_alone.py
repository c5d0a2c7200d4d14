"""``model.sharing="nothing"``: every client trains alone, as SOLO in the MOON paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message

from client_app.app import app
from client_app.training import train
from common import records
from common.config import SettingsError
from common.models import SavedModelError, load_model
from common.storage import read_tensors
from tests.in_process.grid import run_in_process
from tests.settings import make_settings

ALONE: dict[str, Any] = {
    "algorithm": "fedavg",
    "experiment": "exp",
    "num-rounds": 2,
    "train.local-epochs": 2,
    "model.sharing": "nothing",
    "data.client-test": "global",
}


def models_of(folder: Path, server_round: int) -> list[dict[str, torch.Tensor]]:
    """Return what each client kept of a round."""
    state = folder / "moonflower" / "state" / "exp"
    files = sorted(state.glob(f"client-*/round-{server_round:06d}.safetensors"))
    return [read_tensors(file)[0] for file in files]


def test_no_weight_is_in_any_message_and_clients_go_on_from_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays: list[int] = []
    began: list[dict[str, torch.Tensor]] = []

    def listening(message: Message, context: Context) -> Message:
        reply = app(message, context)
        for content in (message.content, reply.content):
            arrays.extend(len(record) for record in content.array_records.values())
        return reply

    def remembering(task: Any, model: Any, *rest: Any) -> Any:
        began.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return train(task, model, *rest)

    monkeypatch.setattr("client_app.app.train", remembering)
    folder = run_in_process(ALONE, 2, tmp_path, client_app=listening)
    # Two rounds of two clients: an instruction and a reply each, and an instruction to evaluate.
    assert arrays == [0] * 12
    first, second = models_of(tmp_path, 1)
    assert not torch.equal(first["predictor.weight"], second["predictor.weight"])
    # The first two began with the same weights, the others with their own of round 1.
    assert torch.equal(began[0]["predictor.weight"], began[1]["predictor.weight"])
    later = {own["predictor.weight"].numpy().tobytes() for own in began[2:]}
    assert later == {own["predictor.weight"].numpy().tobytes() for own in (first, second)}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["global"] is None
    assert lines[-1]["clients"]["per-client"].keys() == {"client-0000", "client-0001"}
    assert [line["alarms"] for line in lines] == [[], []]
    assert [line["update-norm"] for line in lines] == [None, None]
    with pytest.raises(SavedModelError, match="every client trained alone"):
        load_model(folder / "final")


def test_a_run_goes_on_to_the_same_models_after_its_checkpoint(tmp_path: Path) -> None:
    run_in_process({**ALONE, "num-rounds": 1}, 2, tmp_path / "resumed")
    run_in_process({**ALONE, "resume": True}, 2, tmp_path / "resumed")
    run_in_process(ALONE, 2, tmp_path / "straight")
    resumed, straight = (models_of(tmp_path / name, 2) for name in ("resumed", "straight"))
    assert len(resumed) == len(straight) == 2
    for one, other in zip(resumed, straight, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize(
    "changes", [{"algorithm": "fedprox"}, {"algorithm": "moon"}, {"server.aggregator": "fedadam"}]
)
def test_what_needs_a_global_model_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="trains every client alone"):
        make_settings(**{**ALONE, **changes})


def test_nothing_counts_as_shared_when_nothing_is() -> None:
    from common.data import data_spec
    from common.models import build_model

    settings = make_settings(**ALONE)
    model = build_model(settings.model, data_spec(settings.data), 0)
    assert records.shared_state(model, settings.model) == {}

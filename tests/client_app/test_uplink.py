"""What a client sends, and what it keeps for the next round."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from client_app.state import LOCAL_MODEL, ClientState, StateError
from client_app.uplink import RESIDUAL, arrays_to_send
from common.data import data_spec
from common.models import SplitModel, build_model
from common.wire import WireError
from tests.settings import make_settings

INT8 = make_settings(**{"wire.dtype": "int8"})


def trained(step: float) -> tuple[SplitModel, dict[str, Tensor]]:
    """Return a model whose parameters moved by ``step`` and, the first of each, by 127."""
    model = build_model(INT8.model, data_spec(INT8.data), 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        received = {n: t.clone() for n, t in model.state_dict().items()}
        for parameter in model.parameters():
            parameter.fill_(step)
            parameter.view(-1)[0] = 127
    return model, received


def send(state: ClientState, server_round: int, step: float = 0.75) -> int:
    """Return what the second number of the first array is sent as; the scale is 1."""
    model, received = trained(step)
    arrays = arrays_to_send(model, received, INT8, state, server_round)
    first = next(iter(arrays.values())).numpy()
    assert first.reshape(-1)[0] == 127
    return int(first.reshape(-1)[1])


@pytest.fixture
def state(tmp_path: Path) -> ClientState:
    return ClientState(tmp_path, "exp", "site-a", "id-1")


def test_int8_carries_over_what_it_rounds_away(state: ClientState) -> None:
    # 0.75 -> 1; 0.75 - 0.25 = 0.5 -> 0 (even); 0.75 + 0.5 = 1.25 -> 1; 0.75 + 0.25 -> 1
    assert [send(state, server_round) for server_round in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_a_round_that_is_played_again_sends_the_same(state: ClientState) -> None:
    assert [send(state, server_round) for server_round in (1, 2, 2, 3, 2, 3)] == [1, 0, 0, 1, 0, 1]


def test_a_round_that_the_client_was_not_in_changes_nothing(state: ClientState) -> None:
    assert [send(state, server_round) for server_round in (1, 7, 12)] == [1, 0, 1]


def test_the_residual_of_an_earlier_experiment_of_this_name_is_not_used(
    state: ClientState, tmp_path: Path
) -> None:
    send(state, 1)
    assert send(ClientState(tmp_path, "exp", "site-a", "id-2"), 2) == 1


def test_residuals_lie_beside_the_models_and_as_many_stay_as_a_resumed_server_may_need(
    state: ClientState,
) -> None:
    for server_round in range(1, 7):
        send(state, server_round)
    kept = sorted(path.name for path in (state.folder / RESIDUAL).iterdir())
    # server.keep-checkpoints = 2, and the newest
    assert kept == [f"round-00000{n}.safetensors" for n in (4, 5, 6)]
    assert state.kept(LOCAL_MODEL, 9, 9) == []


def test_a_diverged_update_is_refused_and_the_residual_of_the_round_before_stays(
    state: ClientState,
) -> None:
    send(state, 1)
    model, received = trained(float("nan"))
    with pytest.raises(WireError, match="NaN or infinity"):
        arrays_to_send(model, received, INT8, state, 2)
    assert send(state, 2) == 0


def test_the_residual_of_another_model_is_refused(state: ClientState) -> None:
    state.keep(RESIDUAL, 1, {"other": torch.zeros(1)})
    with pytest.raises(StateError, match="another model"):
        send(state, 2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nothing_is_kept_where_nothing_is_left_over(state: ClientState, dtype: str) -> None:
    model, received = trained(0.75)
    arrays_to_send(model, received, make_settings(**{"wire.dtype": dtype}), state, 1)
    assert not state.folder.exists()

"""The local model on its way to the server."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from client_app.state import ClientState
from common import records
from common.config import Settings
from common.models import SplitModel
from common.wire import decode_model, encode_update

RESIDUAL = "residual"
"""The part of a client's state that holds what int8 has rounded away."""


def arrays_to_send(
    model: SplitModel,
    received: ArrayRecord,
    settings: Settings,
    state: ClientState,
    server_round: int,
) -> ArrayRecord:
    """Return the arrays of a reply, and keep on disk what is to be added to the next one.

    As with a client's models, only residuals of rounds before this one count, so that a round
    that is played again sends the same bits.

    Parameters
    ----------
    model : SplitModel
        After training.
    received : ArrayRecord
        The arrays of the instruction.
    settings : Settings
    state : ClientState
        This client's, locked.
    server_round : int

    Raises
    ------
    WireError
        The update can't be sent as ``wire.dtype``: it holds NaN, infinity or too large a number.
        The residual of the round before stays.
    StateError
        The residual can't be read or written.
    """
    after = {
        name: tensor.detach().cpu()
        for name, tensor in records.shared_state(model, settings.model).items()
    }
    parameters = {name for name, _ in model.named_parameters()}
    residuals = state.part(RESIDUAL)
    kept: list[dict[str, Tensor]] = []
    keeps_residual = settings.wire.dtype == "int8"
    if keeps_residual:
        like = {name: after[name] for name in parameters & set(after)}
        kept = residuals.newest_before(server_round, 1, like=like)
    # As they are, nothing is subtracted: spare the copy of a model.
    before = decode_model(received, after) if settings.wire.dtype != "float32" else {}
    update = encode_update(after, before, parameters, settings.wire.dtype, kept[0] if kept else {})
    if keeps_residual:
        left = {name: torch.from_numpy(values) for name, values in update.residual.items()}
        residuals.save(server_round, left)
        # The server may go back by as many rounds as it has checkpoints.
        residuals.prune(1 + settings.server.keep_checkpoints)
    return update.arrays

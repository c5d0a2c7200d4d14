"""The local model on its way to the server."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from client_app.state import ClientState
from common import records
from common.config import Settings
from common.models import SplitModel
from common.wire import encode_update

RESIDUAL = "residual"
"""The part of a client's state that holds what int8 has rounded away."""


def arrays_to_send(
    model: SplitModel,
    received: Mapping[str, Tensor],
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
    received : Mapping[str, Tensor]
        The global model as it arrived (:func:`common.wire.decode_model`); not looked at with
        ``wire.dtype`` float32.
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
    residual: Mapping[str, Tensor] = {}
    if settings.wire.dtype == "int8":
        like = {name: after[name] for name in parameters & set(after)}
        residual = next(iter(state.kept(RESIDUAL, server_round, like=like)), {})
    update = encode_update(after, received, parameters, settings.wire.dtype, residual)
    if settings.wire.dtype == "int8":
        left = {name: torch.from_numpy(values) for name, values in update.residual.items()}
        state.keep(RESIDUAL, server_round, left)
    return update.arrays

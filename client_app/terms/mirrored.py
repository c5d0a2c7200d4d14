"""What a client keeps for itself while the server knows the sum over all clients.

SCAFFOLD's control variate and FedDyn's gradient; :mod:`server_app.strategies.mirrored` is the
other half. Kept is what it was at the start and at the end of a round: the server says which round
of this client's counted last, and where a later reply did not count, the client goes on from what
it had before that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from client_app.terms.base import Instruction
from common.logs import NAME
from common.models import SplitModel, shared_parameters

log = logging.getLogger(NAME)

_ROUND, _COUNTED = "round", "counted"
_BEFORE, _AFTER = "before.", "after."


def shared_values(model: SplitModel, instruction: Instruction) -> dict[str, Tensor]:
    """Return copies of the shared parameters, by name, on the model's device."""
    names = shared_parameters(model, instruction.settings.model)
    return {name: model.get_parameter(name).detach().clone() for name in names}


def own_of(instruction: Instruction, part: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what this client goes on from; zeros in its first round.

    Parameters
    ----------
    instruction : Instruction
        With the last round of this client's that counted (``counted``).
    part : str
        Under which :func:`keep_own` has kept it.
    like : Mapping[str, Tensor]
        Names, shapes, dtypes and the device.
    """
    counted = instruction.counted
    marks = {_ROUND: torch.tensor(0), _COUNTED: torch.tensor(0)}
    layout = marks | {f"{when}{name}": t for when in (_BEFORE, _AFTER) for name, t in like.items()}
    for rounds in (1, instruction.settings.server.keep_checkpoints + 1) if counted else ():
        for kept in instruction.kept(part, rounds, like=layout):
            found = {int(kept[_COUNTED]): _BEFORE, int(kept[_ROUND]): _AFTER}.get(counted)
            if found:
                return {name: kept[f"{found}{name}"].to(t) for name, t in like.items()}
    if counted:
        log.warning(
            "round %d: what this client kept for %s in round %d is gone, and it begins again from "
            "zero; the server's sum still holds it. Was the state folder emptied?",
            instruction.server_round,
            part,
            counted,
        )
    return {name: torch.zeros_like(tensor) for name, tensor in like.items()}


def keep_own(
    instruction: Instruction, part: str, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> None:
    """Keep what it was at the start of the round and is at its end."""
    marks = {
        _ROUND: torch.tensor(instruction.server_round),
        _COUNTED: torch.tensor(instruction.counted),
    }
    tensors = {f"{_BEFORE}{name}": tensor for name, tensor in before.items()}
    tensors |= {f"{_AFTER}{name}": tensor for name, tensor in after.items()}
    instruction.keep(part, marks | tensors)


def inner_product(model: SplitModel, direction: Mapping[str, Tensor]) -> Tensor:
    """Return ``<direction, w>``, which has the gradient ``direction`` and the value zero.

    It corrects a gradient without showing in the loss: its own detached value is taken off.
    """
    products = [(d * model.get_parameter(name)).sum() for name, d in direction.items()]
    total = torch.stack(products).sum()
    return total - total.detach()

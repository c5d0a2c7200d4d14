"""SCAFFOLD's corrected gradient (Karimireddy et al., ICML 2020, arXiv:1910.06378)."""

from __future__ import annotations

from typing import cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from client_app.terms.base import Instruction, Term
from client_app.terms.mirrored import inner_product, keep_own, own_of, shared_values
from common import records
from common.mirrored import control_variate_change
from common.models import SplitModel
from common.schedules import learning_rate
from common.second_model import unpack_model
from common.tasks import Step


class Scaffold(Term):
    """Steps along ``g - c_k + c`` (Eq. 3), over the shared parameters.

    ``c`` comes with the instruction, ``c_k`` is this client's own, by option II of Eq. 4. In the
    first round both are zero.
    """

    name = "scaffold"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Read c and c_k, and remember the global weights."""
        self._instruction, self._steps = instruction, 0
        self._received = shared_values(model, instruction)
        self._c = self._sent(instruction)
        self._own = own_of(instruction, self.name, self._received)
        self._correction = {name: c - self._own[name] for name, c in self._c.items()}

    def penalty(self, step: Step) -> Tensor:
        """Return zero with the gradient ``c - c_k``."""
        self._steps += 1
        return inner_product(step.model, self._correction)

    def end(self, model: SplitModel) -> RecordDict:
        """Keep c_k of this round. The server derives its change from the reply."""
        change = control_variate_change(
            self._received,
            shared_values(model, self._instruction),
            self._c,
            self._steps,
            learning_rate(self._instruction.settings.train, self._instruction.server_round),
        )
        after = {name: own + change[name] for name, own in self._own.items()}
        keep_own(self._instruction, self.name, self._own, after)
        return RecordDict()

    def _sent(self, instruction: Instruction) -> dict[str, Tensor]:
        zeros = {name: torch.zeros_like(value) for name, value in self._received.items()}
        if records.SCAFFOLD_C not in instruction.config:
            return zeros
        blob = cast(bytes, instruction.config[records.SCAFFOLD_C])
        dtype = instruction.settings.wire.dtype
        c = unpack_model(blob, zeros, set(zeros), dtype, "control variate")
        return {name: tensor.to(instruction.node.device) for name, tensor in c.items()}

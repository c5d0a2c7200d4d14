"""FedDyn's dynamic regulariser (Acar et al., ICLR 2021, arXiv:2111.04263)."""

from __future__ import annotations

from flwr.app import RecordDict
from torch import Tensor

from client_app.terms.base import Instruction, Term
from client_app.terms.mirrored import inner_product, keep_own, own_of, shared_values
from client_app.terms.proximal import squared_distance
from common.mirrored import gradient_change
from common.models import SplitModel
from common.tasks import Step


class FedDyn(Term):
    """``-<g_k, theta> + alpha/2 ||theta - theta^t||^2`` (Eq. 1), over the shared parameters.

    ``g_k`` is this client's own estimate of the gradient of its loss, zero in its first round. The
    linear part is reported as zero: its value says nothing, only its gradient does.
    """

    name = "feddyn"

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Read g_k, and remember the global weights theta^t."""
        self._instruction, self._alpha = instruction, instruction.settings.feddyn.alpha
        self._received = shared_values(model, instruction)
        self._own = own_of(instruction, self.name, self._received)
        self._direction = {name: -own for name, own in self._own.items()}

    def penalty(self, step: Step) -> Tensor:
        """Return ``alpha/2 ||theta - theta^t||^2``, with the gradient of both parts."""
        theta = [step.model.get_parameter(name) for name in self._received]
        distance = squared_distance(theta, self._received.values())
        return self._alpha / 2 * distance + inner_product(step.model, self._direction)

    def end(self, model: SplitModel) -> RecordDict:
        """Keep g_k of this round. The server derives its change from the reply."""
        trained = shared_values(model, self._instruction)
        change = gradient_change(self._received, trained, self._alpha)
        after = {name: own + change[name] for name, own in self._own.items()}
        keep_own(self._instruction, self.name, self._own, after)
        return RecordDict()

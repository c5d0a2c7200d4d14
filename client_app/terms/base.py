"""What a local term is: one summand of a client's objective, next to the task's own loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from client_app.state import ClientState
from common.config import Settings
from common.data import ClientData
from common.models import SplitModel
from common.node import Node
from common.tasks import Step


@dataclass(frozen=True)
class Instruction:
    """What a term may know at the start of a round.

    Attributes
    ----------
    server_round : int
        From 1.
    settings : Settings
    config : ConfigRecord
        What the server sent for this round beside the model (``common.records``). Numbers that
        are settings, or follow from a setting and the round (:mod:`common.schedules`), don't
        travel.
    node : Node
    data : ClientData
        Already on the node's device.
    state : ClientState
        What this client kept on disk in earlier rounds.
    counted : int
        The last round of this client's whose reply the server used; 0 if there is none, or the
        algorithm does not ask for it.
    """

    server_round: int
    settings: Settings
    config: ConfigRecord
    node: Node
    data: ClientData
    state: ClientState
    counted: int = 0

    def keep(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep ``tensors`` on this client's disk as what ``part`` is after this round.

        See :meth:`client_app.state.ClientState.keep` for what is kept and for how long.

        Parameters
        ----------
        part : str
            Name of a folder, such as the term's own.
        tensors : Mapping[str, Tensor]
        """
        self.state.keep(part, self.server_round, tensors)

    def kept(
        self, part: str, count: int = 1, like: Mapping[str, Tensor] | None = None
    ) -> list[dict[str, Tensor]]:
        """Return what was kept of ``part`` in the newest ``count`` rounds before this one.

        Newest first, on the CPU; empty in a client's first round. ``like`` gives the names and
        shapes that it must have.
        """
        return self.state.kept(part, self.server_round, count, like)


class Term(Protocol):
    """One summand of the local objective; a term that derives from it says only what differs.

    Attributes
    ----------
    name : str
        The metric under which the mean of its penalty is reported.
    models_kept : int
        How many of this client's local models it wants to find on disk in later rounds.
    """

    name: str
    models_kept: int = 0

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Prepare for a round; ``model`` holds the global weights."""

    def penalty(self, step: Step) -> Tensor:
        """Return this term's part of the loss, a scalar on the model's device.

        ``step`` holds float32, but what is computed of it here runs in ``train.precision``: a
        product of matrices comes back in bfloat16 unless ``torch.autocast`` is switched off for
        it. A batch may hold one example only, whose statistics do not exist.
        """

    def metrics(self) -> Mapping[str, Tensor]:
        """Return sums over the round's steps, to be divided by their number.

        The keys are the same for every client and every round, since Flower's aggregators
        refuse replies whose keys differ. None beyond the penalty unless a term overrides this.
        """
        return {}

    def end(self, model: SplitModel) -> RecordDict:
        """Return records to add to the reply; ``model`` holds the trained local weights.

        What the term wants to find in later rounds is given to :meth:`Instruction.keep` here. No
        records unless a term overrides this.
        """
        return RecordDict()

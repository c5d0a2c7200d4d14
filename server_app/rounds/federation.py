"""What a run of rounds works with, and how it can fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from common import records
from common.config import Settings
from common.errors import MoonflowerError
from common.models import SplitModel
from common.tasks import Task, build_task
from server_app.clients.roster import Roster
from server_app.exchange.clock import Clock
from server_app.exchange.late_replies import LateReplies
from server_app.experiment.tracker import Tracker
from server_app.tracking.beside import Tracking

if TYPE_CHECKING:
    from common.data import ExampleSet


class RoundFailedError(MoonflowerError, RuntimeError):
    """A round can't be finished; the message names each client's reason.

    It had too few usable replies, twice; or the strategy made no model.
    """


class ClientFailedError(RoundFailedError):
    """A client failed, and ``server.failure-policy`` is ``stop``: a person has to decide."""

    permanent = True


class DivergedError(MoonflowerError, RuntimeError):
    """The aggregated model holds NaN or infinity; nothing good was overwritten by it."""

    permanent = True


@dataclass(frozen=True)
class Federation:
    """What a run of rounds works with.

    Attributes
    ----------
    model : SplitModel
        The global model, on the server's device; what of it stays with the clients keeps its first
        values. Its weights change from round to round.
    test_set : ExampleSet or None
        On the same device. None: the global model is not evaluated by the server.
    tracking : Tracking
        The trackers that are told of every round.
    late : LateReplies
        Of rounds that are over.
    """

    settings: Settings
    grid: Grid
    roster: Roster
    strategy: Strategy
    model: SplitModel
    test_set: ExampleSet | None
    tracker: Tracker
    clock: Clock
    tracking: Tracking = field(default_factory=Tracking)
    late: LateReplies = field(default_factory=LateReplies)

    @cached_property
    def task(self) -> Task:
        """What is learned, and how good a model is at it."""
        return build_task(self.settings)

    @property
    def arrays(self) -> ArrayRecord:
        """The global model as it travels: a copy of what of it is shared."""
        return records.to_arrays(records.shared_state(self.model, self.settings.model))

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the model's parameters."""
        return frozenset(name for name, _ in self.model.named_parameters())

    def take(self, arrays: ArrayRecord) -> None:
        """Make ``arrays`` the global model."""
        self.model.load_state_dict({**self.model.state_dict(), **records.to_tensors(arrays)})

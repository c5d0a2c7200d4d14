"""What a run of rounds works with, and how it can fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from common.config import Settings
from common.errors import MoonflowerError
from common.models import SplitModel
from common.tasks import Task, build_task
from server_app.clients.roster import Roster
from server_app.exchange.clock import Clock
from server_app.exchange.late_replies import LateReplies
from server_app.experiment.tracker import Tracker

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
    """What stays the same from round to round.

    Attributes
    ----------
    model : SplitModel
        A place to put the global weights for evaluation and saving, on the server's device.
    test_set : ExampleSet or None
        On the same device. None: the global model is not evaluated by the server.
    late : LateReplies
        Of rounds that are over; the one thing here that changes.
    """

    settings: Settings
    grid: Grid
    roster: Roster
    strategy: Strategy
    model: SplitModel
    test_set: ExampleSet | None
    tracker: Tracker
    clock: Clock
    late: LateReplies = field(default_factory=LateReplies)

    @cached_property
    def task(self) -> Task:
        """What is learned, and how good a model is at it."""
        return build_task(self.settings)

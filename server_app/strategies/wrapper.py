"""What every strategy wrapper shares: calling the strategy inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor


class Clients(Protocol):
    """What a wrapper may know of the clients (``server_app.clients.roster.Roster``)."""

    def name_of(self, node_id: int) -> str:
        """Return the client's name."""

    def label_counts(self) -> Mapping[str, Sequence[int]]:
        """Return examples per label of every client that is here."""


class Wrapper(Strategy):
    """A strategy that passes everything on to the one inside.

    As in Flower's differential-privacy wrappers, an algorithm overrides only what differs and
    calls ``super()`` for the rest, so that wrappers can be put around each other.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pass on."""
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pass on."""
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pass on."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Pass on."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def why_not(self, client: str, reply: Message) -> str:
        """Return why a train reply can't be used, or "".

        Asked of every wrapper before the reply is admitted. A wrapper that takes records of its
        own out of the replies looks at them here, and not at what the strategy inside wants.

        Parameters
        ----------
        client : str
        reply : Message
            Its metrics have the right form; its arrays are not looked at yet.
        """
        return ""

    def summary(self) -> None:
        """Pass on."""
        self.strategy.summary()

    def state_dict(self) -> dict[str, Tensor]:
        """Return what this wrapper, not the strategy inside, remembers from round to round.

        Everything that a run resumed after this round needs to give the same bits. A wrapper
        that remembers something overrides this and :meth:`load_state_dict`.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put :meth:`state_dict` back.

        Raises
        ------
        KeyError, ValueError, RuntimeError
            ``state`` is not of such a wrapper.
        """
        if state:
            raise ValueError(f"it remembers nothing, but {sorted(state)} was saved")


def chain(strategy: Strategy) -> Iterator[Strategy]:
    """Yield ``strategy`` and all strategies inside it, the outermost first."""
    inside: Strategy | None = strategy
    while inside is not None:
        yield inside
        # Flower's differential-privacy wrappers keep theirs under the same name.
        inside = getattr(inside, "strategy", None)


def why_not(strategy: Strategy, client: str, reply: Message) -> str:
    """Return the first reason of all wrappers around and inside ``strategy``, or ""."""
    wrappers = (each for each in chain(strategy) if isinstance(each, Wrapper))
    return next(filter(None, (each.why_not(client, reply) for each in wrappers)), "")

"""What every client keeps for itself and the server knows the sum of.

SCAFFOLD's control variates c_k and FedDyn's gradients g_k. A client changes its own at the end of
a round (:mod:`client_app.terms.mirrored`); the server works out the same change from the reply, so
that nothing more than the model goes up.

A client whose reply does not count (it is refused, late or lost) has changed what is on its disk
all the same. So every instruction says which round of its client counted last, and the client
goes on from there. Then the sum here is that of what the clients go on from, whatever happens to
replies: a run in which a reply is refused is one in which the client was not asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import Tensor

from common import records
from common.logs import NAME
from server_app.strategies.wrapper import Clients

log = logging.getLogger(NAME)

_SUM, _CLIENT = "sum.", "client."  # beginnings of names in the saved state


@dataclass(frozen=True)
class Weighted:
    """A reply, its client's name, and what it weighs."""

    client: str
    weight: int
    reply: Message

    @property
    def arrays(self) -> ArrayRecord:
        """The client's model."""
        return records.of_type(self.reply.content, ArrayRecord)[records.ARRAYS]


class MirroredSum:
    """``sum_k w_k own_k`` over all clients, each client's own beginning at zero.

    ``w_k`` is 1, or where clients count by their examples the number of them in the client's
    first reply that counts: it stays, or the sum would hold parts of two weights.

    Parameters
    ----------
    clients : Clients
    uniform : bool
        Whether every client weighs the same (``server.weighting``).
    """

    def __init__(self, clients: Clients, *, uniform: bool) -> None:
        self._clients, self._uniform = clients, uniform
        self._sum: dict[str, Tensor] = {}
        # By client: the last round that counted, and its weight.
        self._known: dict[str, tuple[int, int]] = {}

    def mean(self) -> dict[str, Tensor]:
        """Return ``sum_k p_k own_k`` with ``p_k = w_k / sum w``; empty before the first reply.

        All clients count, those that have never taken part with zero, as do those that are away.
        """
        here = {
            name: 1 if self._uniform else sum(held)
            for name, held in self._clients.label_counts().items()
        }
        weights = here | {name: weight for name, (_, weight) in self._known.items()}
        total = sum(weights.values())
        return {name: tensor / total for name, tensor in self._sum.items()}

    def addressed(self, messages: Iterable[Message]) -> list[Message]:
        """Return the instructions, each with the round of its client that counted last.

        In a record of its own: all else of them stays shared.
        """
        outgoing = list(messages)
        for message in outgoing:
            name = self._clients.name_of(message.metadata.dst_node_id)
            counted, _ = self._known.get(name, (0, 0))
            record = ConfigRecord({records.ROUND: counted})
            # Flower's strategies put one RecordDict into all messages.
            message.content = type(message.content)(
                {**dict(message.content.items()), records.COUNTED: record}
            )
        return outgoing

    def weighted(self, replies: Iterable[Message]) -> list[Weighted]:
        """Return the replies with their clients and weights.

        Before the strategy inside, which may change the number of examples in a reply.
        """
        names = ((self._clients.name_of(each.metadata.src_node_id), each) for each in replies)
        return [Weighted(name, self._weight(name, reply), reply) for name, reply in names]

    def add(self, server_round: int, each: Weighted, change: Mapping[str, Tensor]) -> None:
        """Note that a client has changed its own by ``change``, in a round that counts.

        A change that is not finite (the model may be, and its change over a small learning rate
        not) is left out, and the client told so as after a refused reply.
        """
        if not all(bool(tensor.isfinite().all()) for tensor in change.values()):
            log.warning(
                "round %d: the correction of %s follows from its reply as infinity and is left "
                "out; bound what a client may send with server.max-update-norm",
                server_round,
                each.client,
            )
            return
        self._known[each.client] = (server_round, each.weight)
        for name, tensor in change.items():
            self._sum[name] = self._sum.get(name, 0) + each.weight * tensor

    def state_dict(self) -> dict[str, Tensor]:
        """Return all of it for the checkpoint."""
        known = {f"{_CLIENT}{name}": torch.tensor(pair) for name, pair in self._known.items()}
        return {f"{_SUM}{name}": tensor for name, tensor in self._sum.items()} | known

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put :meth:`state_dict` back.

        Raises
        ------
        ValueError
            ``state`` holds something else.
        """
        self._sum, self._known = {}, {}
        for name, tensor in state.items():
            if name.startswith(_SUM):
                self._sum[name.removeprefix(_SUM)] = tensor
            elif name.startswith(_CLIENT):
                counted, weight = tensor.tolist()
                self._known[name.removeprefix(_CLIENT)] = (counted, weight)
            else:
                raise ValueError(f"{name!r} is no part of it")

    def _weight(self, client: str, reply: Message) -> int:
        if client in self._known:
            return self._known[client][1]
        return 1 if self._uniform else records.num_examples(reply)


def shared_in(arrays: ArrayRecord, names: Iterable[str]) -> dict[str, Tensor]:
    """Return the arrays of these names as tensors on the CPU."""
    return {name: torch.from_numpy(arrays[name].numpy().copy()) for name in names}

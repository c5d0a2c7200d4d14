"""The global model on its way to the clients."""

from __future__ import annotations

from collections.abc import Iterable, Set

from flwr.app import ArrayRecord, Message

from common import records
from common.config import WireDtype
from common.wire import encode_model


def encoded(messages: Iterable[Message], parameters: Set[str], dtype: WireDtype) -> list[Message]:
    """Return the messages with the model in them as it travels.

    After the strategy, which is shown the model in its own dtype: FedAvgM and FedAdam compute
    with what they are given to send. Messages that share a model go on sharing it.

    Raises
    ------
    WireError
        The model holds a number that can't travel so: training diverges.
    """
    outgoing = list(messages)
    # Model before and after by the identity of both; the values keep them alive meanwhile.
    done: dict[int, tuple[ArrayRecord, ArrayRecord]] = {}
    for message in outgoing:
        arrays = records.of_type(message.content, ArrayRecord)[records.ARRAYS]
        if id(arrays) not in done:
            smaller = encode_model(arrays, parameters, dtype)
            done[id(arrays)] = (arrays, smaller)
            # Flower's strategies put one RecordDict into all messages.
            done[id(smaller)] = (smaller, smaller)
        message.content[records.ARRAYS] = done[id(arrays)][1]
    return outgoing

"""The model in the messages to the clients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from common import records
from common.wire import WireError
from server_app.exchange.downlink import encoded
from tests.in_process.grid import task_identity


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    with task_identity():
        yield


def messages(value: float, count: int = 2) -> list[Message]:
    """Return messages that share one content, as Flower's strategies make them."""
    content = RecordDict({records.ARRAYS: ArrayRecord({"w": Array(np.float32([value]))})})
    return [Message(content, node_id, records.TRAIN) for node_id in range(1, count + 1)]


def model_in(message: Message) -> ArrayRecord:
    return message.content.array_records[records.ARRAYS]


def test_messages_that_share_a_model_share_the_smaller_one() -> None:
    one, other = encoded(messages(0.1), {"w"}, "int8")
    assert model_in(one)["w"].dtype == "float16"
    assert model_in(one)["w"] is model_in(other)["w"]


def test_the_strategys_own_record_is_left_as_it_is() -> None:
    sent = messages(0.1)
    before = model_in(sent[0])
    encoded(sent, {"w"}, "float16")
    assert before["w"].dtype == "float32"


def test_messages_with_models_of_their_own_keep_them() -> None:
    mixed = [*messages(1.0, 1), *messages(2.0, 1)]
    assert [model_in(m)["w"].numpy().tolist() for m in encoded(mixed, {"w"}, "float16")] == [
        [1.0],
        [2.0],
    ]


def test_a_model_too_large_for_float16_is_refused() -> None:
    with pytest.raises(WireError, match="holds 70000"):
        encoded(messages(70000.0), {"w"}, "float16")

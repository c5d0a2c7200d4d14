"""Replies as broken clients may send them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord

from common import records

Arrays = dict[str, Array]


def _with_arrays(change: Callable[[Arrays, str], None]) -> Callable[[Message], Message]:
    def changed(reply: Message) -> Message:
        arrays = dict(reply.content.array_records[records.ARRAYS])
        change(arrays, next(iter(arrays)))
        reply.content[records.ARRAYS] = ArrayRecord(arrays)
        return reply

    return changed


def _first_number(value: float) -> Callable[[Message], Message]:
    def change(arrays: Arrays, name: str) -> None:
        numbers = arrays[name].numpy().copy()
        numbers.flat[0] = value
        arrays[name] = Array(numbers)

    return _with_arrays(change)


def _reshape(arrays: Arrays, name: str) -> None:
    arrays[name] = Array(arrays[name].numpy().reshape(-1)[:-1].copy())


def _to_double(arrays: Arrays, name: str) -> None:
    arrays[name] = Array(arrays[name].numpy().astype(np.float64))


def _drop(arrays: Arrays, name: str) -> None:
    del arrays[name]


def _add(arrays: Arrays, name: str) -> None:
    arrays["another.weight"] = arrays[name]


def _examples(number: int) -> Callable[[Message], Message]:
    def changed(reply: Message) -> Message:
        metrics = dict(reply.content.metric_records[records.METRICS])
        metrics[records.NUM_EXAMPLES] = number
        reply.content[records.METRICS] = MetricRecord(metrics)
        return reply

    return changed


def _for_next_round(reply: Message) -> Message:
    answered = int(reply.content.config_records[records.REPLY][records.ROUND])
    reply.content[records.REPLY] = ConfigRecord({records.ROUND: answered + 1})
    return reply


CHANGES: dict[str, Callable[[Message], Message]] = {
    "nan": _first_number(float("nan")),
    "infinity": _first_number(float("inf")),
    "wrong-shape": _with_arrays(_reshape),
    "wrong-dtype": _with_arrays(_to_double),
    "missing-key": _with_arrays(_drop),
    "extra-key": _with_arrays(_add),
    "negative-examples": _examples(-5),
    "zero-examples": _examples(0),
    "huge-examples": _examples(2**62),
    "wrong-round": _for_next_round,
}
"""From the action of a fault to what it does to an honest reply."""

"""What a hostile site may send in place of an honest train reply.

Each attack takes the honest reply and returns what arrives. Found in a security test of real
federations; all that a reply can be made of is tried: arrays and their bytes, metrics, label
counts, the round it answers, errors, further records.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord

from common import records
from server_app.errors import NOTHING_TO_RESUME, PERMANENT

Attack = Callable[[Message], Message]

TERMINAL = "\x1b[2J\x1b[1;31mPWNED\x1b[0m\nmoonflower INFO round 99/99  loss 0.001\r\n\u202e"
"""Clears the screen, writes in red, forges a line of the log, and turns what follows around."""


def arrays_of(reply: Message) -> dict[str, Array]:
    """Return the reply's arrays by name."""
    return dict(reply.content.array_records[records.ARRAYS])


def with_arrays(change: Callable[[dict[str, Array]], object]) -> Attack:
    """Return an attack that changes the dict of arrays in place."""

    def attack(reply: Message) -> Message:
        arrays = arrays_of(reply)
        change(arrays)
        reply.content[records.ARRAYS] = ArrayRecord(arrays)
        return reply

    return attack


def with_first(change: Callable[[Array], Array]) -> Attack:
    """Return an attack on the first array."""

    def first(arrays: dict[str, Array]) -> None:
        name = next(iter(arrays))
        arrays[name] = change(arrays[name])

    return with_arrays(first)


def with_values(change: Callable[[np.ndarray], Any]) -> Attack:
    """Return an attack on the numbers of the first array."""
    return with_first(lambda array: Array(np.asarray(change(array.numpy().copy()))))


def with_bytes(data: bytes, stype: str = "numpy.ndarray") -> Attack:
    """Return an attack on the bytes of the first array."""
    return with_first(
        lambda array: Array(dtype=array.dtype, shape=tuple(array.shape), stype=stype, data=data)
    )


def with_metric(name: str, value: Any) -> Attack:
    """Return an attack that sets a metric."""

    def attack(reply: Message) -> Message:
        reply.content.metric_records[records.METRICS][name] = value
        return reply

    return attack


def with_record(name: str, record: Any) -> Attack:
    """Return an attack that adds or replaces a record; None takes it away."""

    def attack(reply: Message) -> Message:
        reply.content.pop(name, None)
        if record is not None:
            reply.content[name] = record
        return reply

    return attack


def with_error(code: int, reason: str) -> Attack:
    """Return an attack that answers with an error."""
    return lambda reply: Message(  # type: ignore[call-overload,no-any-return]
        error=Error(code, reason), metadata=reply.metadata
    )


def of_round(value: Any) -> Attack:
    """Return an attack that says it answers another round."""
    return with_record(records.REPLY, ConfigRecord({records.ROUND: value}))


def counting(change: Callable[[list[int]], Any]) -> Attack:
    """Return an attack on FedGen's label counts."""

    def attack(reply: Message) -> Message:
        record = reply.content.config_records[records.LABEL_COUNTS]
        counts = [int(n) for n in record["counts"]]  # type: ignore[union-attr]
        reply.content[records.LABEL_COUNTS] = ConfigRecord({"counts": change(counts)})
        return reply

    return attack


def npy(shape: str, dtype: str = "<f4", header: int = 0) -> bytes:
    """Return a file of NumPy's that claims a shape, with 64 bytes of zeros behind it."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (max(header, 128) - len(text) - 1) + b"\n"
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + b"\0" * 64


def npz(size: int) -> bytes:
    """Return a compressed archive that unfolds to ``size`` bytes."""
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(size, np.uint8))
    return file.getvalue()


class _Harmful:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        import os

        return os._exit, (66,)


def pickled_array() -> bytes:
    """Return a file of NumPy's whose numbers are a pickle."""
    file = io.BytesIO()
    np.save(file, np.array([_Harmful()], dtype=object), allow_pickle=True)
    return file.getvalue()


def _put(values: np.ndarray, index: int, value: float) -> np.ndarray:
    values.flat[index] = value
    return values


def _moved(counts: list[int]) -> list[int]:
    return [counts[0] - 1000, counts[1] + 1000, *counts[2:]]


def _filled(value: float, *endings: str) -> Callable[[dict[str, Array]], None]:
    """Fill all arrays whose names end so."""

    def fill(arrays: dict[str, Array]) -> None:
        for name, array in arrays.items():
            if name.endswith(endings):
                arrays[name] = Array(np.full_like(array.numpy(), value))

    return fill


def _huge(arrays: dict[str, Array]) -> None:
    _filled(3e38, "weight", "bias", "running_mean")(arrays)


def _absurd_statistics(arrays: dict[str, Array]) -> None:
    _filled(1e6, "running_mean")(arrays)
    _filled(1e-8, "running_var")(arrays)
    _filled(2**63 - 1, "num_batches_tracked")(arrays)


weights_3e38 = with_arrays(_huge)
"""Finite, and as large as a float32 can be."""

bn_buffers = with_arrays(_absurd_statistics)
"""BatchNorm divides by next to nothing."""

REFUSED: dict[str, Attack] = {
    "nan": with_values(lambda values: _put(values, 0, math.nan)),
    "inf": with_values(lambda values: _put(values, -1, -math.inf)),
    "shape": with_values(lambda values: values.reshape(-1)),
    "extra array": with_arrays(lambda arrays: arrays.update(zzz=Array(np.zeros(3, np.float32)))),
    "10,000 extra arrays": with_arrays(
        lambda arrays: arrays.update({f"x{n}": Array(np.zeros(1)) for n in range(10_000)})
    ),
    "missing array": with_arrays(lambda arrays: arrays.pop(next(iter(arrays)))),
    "no arrays": with_arrays(lambda arrays: arrays.clear()),
    "array name": with_arrays(lambda arrays: arrays.update({TERMINAL: Array(np.zeros(1))})),
    "float64": with_values(lambda values: values.astype(np.float64)),
    "big endian": with_values(lambda values: values.astype(">f4")),
    "complex": with_values(lambda values: values.astype(np.complex64)),
    "pickled array": with_bytes(pickled_array()),
    "pickle": with_bytes(pickle.dumps(_Harmful())),
    "npz": with_bytes(npz(10)),
    "npz bomb": with_bytes(npz(300_000_000)),
    "10 GB": with_bytes(npy("(2500000000,)")),
    "1 PB": with_bytes(npy("(250000000000000,)")),
    "negative shape": with_bytes(npy("(-5,)")),
    "shape overflows": with_bytes(npy("(4294967296, 4294967296, 4)")),
    "nested shape": with_bytes(npy("(" * 3000 + ")" * 3000)),
    "void": with_bytes(npy("(1,)", "|V2147483647")),
    "header of 20 MB": with_bytes(npy("(1,)", header=20_000_000)),
    "torch": with_bytes(b"123", "torch.tensor"),
    "no bytes": with_bytes(b""),
    "-5 examples": with_metric(records.NUM_EXAMPLES, -5),
    "0 examples": with_metric(records.NUM_EXAMPLES, 0),
    "2**62 examples": with_metric(records.NUM_EXAMPLES, 2**62),
    "2**64 - 1 examples": with_metric(records.NUM_EXAMPLES, 2**64 - 1),
    "10.5 examples": with_metric(records.NUM_EXAMPLES, 10.5),
    "nan examples": with_metric(records.NUM_EXAMPLES, math.nan),
    "inf examples": with_metric(records.NUM_EXAMPLES, math.inf),
    "-0 examples": with_metric(records.NUM_EXAMPLES, -0.0),
    "a list of examples": with_metric(records.NUM_EXAMPLES, [1, 2]),
    "more examples than it had": with_metric(records.NUM_EXAMPLES, 10_000),
    "no metrics": with_record(records.METRICS, None),
    "two records of metrics": with_record("more", MetricRecord({"a": 1})),
    "extra metric": with_metric("extra", 1.0),
    "metric name": with_metric(TERMINAL, 1.0),
    "long metric name": with_metric("k" * 10_000_000, 1.0),
    "long metric": with_metric("extra", [1.0] * 1_000_000),
    "nan loss": with_metric(records.LOSS, math.nan),
    "inf seconds": with_metric(records.TRAIN_SECONDS, math.inf),
    "list of losses": with_metric(records.LOSS, [1.0, 2.0]),
    "loss of 1e308": with_metric(records.LOSS, 1e308),
    "another round": of_round(99),
    "a list of rounds": of_round([1] * 1000),
    "round as text": of_round(TERMINAL * 100),
    "no round": with_record(records.REPLY, None),
    "error": with_error(6, f"{TERMINAL}{PERMANENT} {NOTHING_TO_RESUME}"),
    "error of 20 MB": with_error(6, "E" * 20_000_000),
    "error code": with_error(2**31 - 1, ""),
    "negative counts": counting(_moved),
    "a million counts": counting(lambda counts: [1] * 1_000_000),
    "counts beyond int64": counting(lambda counts: [2**64 - 1, *counts[1:]]),
    "counts of 1.5": counting(lambda counts: [1.5] * 10),
    "true counts": counting(lambda counts: [True] * 10),
    "no counts": with_record(records.LABEL_COUNTS, None),
    "weights of 3e38": weights_3e38,
    "running statistics": bn_buffers,
    "running mean": with_arrays(_filled(-1e9, "running_mean")),
    "running variance": with_arrays(_filled(1e30, "running_var")),
    "negative variance": with_arrays(_filled(-1e-30, "running_var")),
}
"""Attacks that a server refuses by default, of four replies or more."""

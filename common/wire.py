"""What the model looks like on the wire (``wire.dtype``), and back.

With ``float32`` arrays travel as they are. Else *parameters* get smaller:

* to the clients, as float16 numbers. The server keeps the model in its own dtype, as training in
  mixed precision does (Micikevicius et al., ICLR 2018, arXiv:1710.03740, section 3.1), so a step
  smaller than float16 can show is not lost;
* to the server, as the client's *update*, its model minus the one it received: in float16, or in
  int8 with a scale per array (linear quantisation, Dettmers, ICLR 2016, arXiv:1511.04561). What
  int8 rounds away is added to the client's next update: error feedback (Seide et al., Interspeech
  2014; Karimireddy et al., ICML 2019, arXiv:1901.09847, Algorithm 2). The server adds the update
  to the model in its own dtype.

Buffers (BatchNorm's statistics, counters) travel as they are: a variance may be above 65504, the
largest float16, or so small that it would become zero, and they are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.common import NDArray
from torch import Tensor

from common import records
from common.config import WireDtype
from common.errors import MoonflowerError

LARGEST_INT8 = 127
"""Symmetric: -128 is not used, so that a number and its negative round alike."""


class WireError(MoonflowerError, ValueError):
    """Arrays can't be encoded or decoded; the message names the array and says why."""

    permanent = True


@dataclass(frozen=True)
class EncodedUpdate:
    """What a client sends.

    Attributes
    ----------
    arrays : ArrayRecord
    residual : dict[str, NDArray]
        What is to be added to this client's next update, by parameter; empty unless int8.
    """

    arrays: ArrayRecord
    residual: dict[str, NDArray] = field(default_factory=dict)


def to_float16(values: NDArray) -> NDArray:
    """Return the nearest float16 numbers, ties to even.

    Infinity from 65520 on; zero up to 2**-25, half of the smallest float16.
    """
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def quantised(values: NDArray) -> tuple[NDArray, np.float32]:
    """Return int8 ``q`` and a scale ``s`` such that ``q * s`` is nearest to ``values``.

    ``s = max |values| / 127``, one for the whole array; ``q = values / s``, rounded, ties to even.

    Parameters
    ----------
    values : NDArray
        Finite, of a floating dtype and any shape.

    Returns
    -------
    q : NDArray
        Int8 from -127 to 127, of the same shape.
    s : np.float32
        At least 0. It is 0, and so is ``q``, where the largest value is 0 or so close to it
        (below 1e-43) that a float32 can't hold ``s``.
    """
    scale = np.float32(np.max(np.abs(values), initial=0) / LARGEST_INT8)
    if scale == 0:
        return np.zeros(values.shape, np.int8), scale
    steps = np.rint(values / values.dtype.type(scale))
    # Near the smallest float32 the scale itself is rounded, by up to a third.
    return np.clip(steps, -LARGEST_INT8, LARGEST_INT8).astype(np.int8), scale


def dequantised(steps: NDArray, scale: np.float32, dtype: np.dtype) -> NDArray:
    """Return ``steps * scale``, computed in ``dtype``; infinity where it can't hold the product."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(steps.astype(dtype) * dtype.type(scale))


def smaller_state(
    state: Mapping[str, Tensor], parameters: Set[str], dtype: WireDtype
) -> dict[str, Tensor]:
    """Return ``state`` as the server sends it: unless ``dtype`` is float32, parameters in float16.

    Raises
    ------
    WireError
        A parameter holds a number that float16 does not: NaN, infinity, or one from 65520 on.
    """
    if dtype == "float32":
        return dict(state)
    smaller = dict(state)
    for name in parameters & set(state):
        values = state[name].detach().cpu().numpy()
        if _gets_smaller(values.dtype):
            smaller[name] = torch.from_numpy(_as_float16(name, values))
    return smaller


def encode_model(arrays: ArrayRecord, parameters: Set[str], dtype: WireDtype) -> ArrayRecord:
    """Return the global model as it travels to the clients; see :func:`smaller_state`."""
    if dtype == "float32":
        return arrays
    return records.to_arrays(smaller_state(records.to_tensors(arrays), parameters, dtype))


def decode_model(arrays: ArrayRecord, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the global model as it arrived, on the CPU, with the dtypes of ``like``.

    Names that ``like`` has not keep their dtype: who loads them will refuse them.
    """
    tensors = records.to_tensors(arrays)
    return {name: t.to(like[name].dtype) if name in like else t for name, t in tensors.items()}


def encode_update(
    after: Mapping[str, Tensor],
    before: Mapping[str, Tensor],
    parameters: Set[str],
    dtype: WireDtype,
    residual: Mapping[str, Tensor],
) -> EncodedUpdate:
    """Return a client's reply.

    Parameters
    ----------
    after, before : Mapping[str, Tensor]
        The shared part of its state dict after training, and as it was received
        (:func:`decode_model`): the same names, shapes and dtypes. With float32 ``before`` is not
        looked at.
    parameters : Set[str]
        Names of parameters.
    dtype : {"float32", "float16", "int8"}
    residual : Mapping[str, Tensor]
        From this client's last :class:`EncodedUpdate`; empty in its first round, and unless int8.

    Raises
    ------
    WireError
        An update holds NaN or infinity, or a number that ``dtype`` can't hold.
    """
    if dtype == "float32":
        return EncodedUpdate(records.to_arrays(after))
    sent = ArrayRecord()
    left: dict[str, NDArray] = {}
    scales: list[np.float32] = []
    for name, tensor in after.items():
        values = tensor.detach().cpu().numpy()
        if name not in parameters or not _gets_smaller(values.dtype):
            sent[name] = Array(values)
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            update = values - before[name].cpu().numpy()
            if name in residual:
                update = update + residual[name].numpy()
        if dtype == "float16":
            sent[name] = Array(_as_float16(name, update))
            continue
        steps, scale = quantised(_finite(name, update))
        left[name] = _finite(name, update - dequantised(steps, scale, update.dtype))
        scales.append(scale)
        sent[name] = Array(steps)
    if dtype == "int8":
        sent[records.SCALES] = Array(np.array(scales, np.float32))
    return EncodedUpdate(sent, left)


def decode_update(
    arrays: ArrayRecord, base: ArrayRecord, parameters: Set[str], dtype: WireDtype
) -> ArrayRecord:
    """Return the model that a reply of :func:`encode_update` stands for, in the dtypes of ``base``.

    Parameters
    ----------
    arrays : ArrayRecord
        What came. Anything may be in it.
    base : ArrayRecord
        The global model before it was encoded; a reply's update is added to it.
    parameters : Set[str]
        Names of parameters.
    dtype : {"float32", "float16", "int8"}
        With float32 ``arrays`` are returned, unseen.

    Raises
    ------
    WireError
        Other names, dtypes or shapes than ``dtype`` asks for, arrays that can't be read, NaN or
        infinity, or a scale below 0.
    """
    if dtype == "float32":
        return arrays
    small = [name for name in base if name in parameters and _gets_smaller(base[name].dtype)]
    check_names(arrays, [*base, records.SCALES] if dtype == "int8" else base)
    scales = _scales(arrays[records.SCALES], small) if dtype == "int8" else {}
    decoded = ArrayRecord()
    for name, expected in base.items():
        if name not in small:
            decoded[name] = arrays[name]
            continue
        values = unpacked(name, arrays[name])
        _check_form(name, values, dtype, tuple(expected.shape))
        before = expected.numpy()
        if dtype == "int8":
            update = dequantised(values, scales[name], before.dtype)
        else:
            update = _finite(name, values).astype(before.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            decoded[name] = Array(np.asarray(before + update))
    return decoded


def check_names(found: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise :class:`WireError` unless both hold the same names."""
    missing, extra = sorted({*wanted} - {*found}), sorted({*found} - {*wanted})
    if missing or extra:
        raise WireError(
            f"its arrays have other names than the model: missing {missing}, extra {extra}"
        )


def unpacked(name: str, array: Array) -> NDArray:
    """Return the numbers of an array that came from outside.

    Raises
    ------
    WireError
        They can't be read.
    """
    try:
        values: object = array.numpy()
    except Exception as error:  # bytes from outside: whatever numpy says, it is unreadable
        raise WireError(f"array {name!r} can't be read: {error}") from error
    if not isinstance(values, np.ndarray):  # NumPy also opens archives of several arrays
        raise WireError(
            f"array {name!r} can't be read: it is a {type(values).__name__}, not one array"
        )
    return values


def _scales(array: Array, names: list[str]) -> dict[str, np.float32]:
    values = unpacked(records.SCALES, array)
    _check_form(records.SCALES, values, "float32", (len(names),))
    scales = dict(zip(names, values, strict=True))
    for name, scale in scales.items():
        if not (np.isfinite(scale) and scale >= 0):
            raise WireError(
                f"the scale of array {name!r} is {scale}: finite and at least 0 is allowed"
            )
    return scales


def _check_form(name: str, values: NDArray, dtype: str, shape: tuple[int, ...]) -> None:
    # What was unpacked, not what the header claims.
    if (str(values.dtype), values.shape) != (dtype, shape):
        raise WireError(
            f"array {name!r} came as {values.dtype}{list(values.shape)}, wire.dtype asks for "
            f"{dtype}{list(shape)}; does its site run with the same settings?"
        )


def _gets_smaller(dtype: np.dtype | str) -> bool:
    wide = np.dtype(dtype)
    return bool(np.issubdtype(wide, np.floating)) and wide.itemsize > np.dtype(np.float16).itemsize


def _as_float16(name: str, values: NDArray) -> NDArray:
    half = to_float16(_finite(name, values))
    if not np.isfinite(half).all():
        raise WireError(
            f"array {name!r} holds {np.abs(values).max():g}, a float16 holds up to 65504: set "
            "wire.dtype to float32, or lower train.learning-rate if training diverges"
        )
    return half


def _finite(name: str, values: NDArray) -> NDArray:
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise WireError(f"array {name!r} holds NaN or infinity in {bad} of {values.size} places")
    return values

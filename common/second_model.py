"""A second model in an instruction: bytes in its ConfigRecord, smaller by ``wire.dtype``.

FedGen's generator, SCAFFOLD's control variate. Not an ArrayRecord of its own, because Flower's
mods accept one only.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from common.config import WireDtype
from common.wire import smaller_state


def pack_model(state: Mapping[str, Tensor], parameters: Set[str], dtype: WireDtype) -> bytes:
    """Return ``state`` as safetensors; the same tensors give the same bytes.

    Unless ``dtype`` is float32, its parameters travel as float16, like the model's
    (:func:`common.wire.smaller_state`).

    Raises
    ------
    WireError
        A parameter is not finite or too large for float16.
    """
    smaller = smaller_state(state, parameters, dtype)
    return safetensors.torch.save({name: t.cpu().contiguous() for name, t in smaller.items()})


def unpack_model(
    blob: bytes, like: Mapping[str, Tensor], parameters: Set[str], dtype: WireDtype, what: str
) -> dict[str, Tensor]:
    """Return the tensors of :func:`pack_model`, on the CPU, with the dtypes of ``like``.

    Parameters
    ----------
    blob : bytes
    like : Mapping[str, Tensor]
        Finite tensors with the names, shapes and dtypes that were packed.
    parameters : Set[str]
    dtype : {"float32", "float16", "int8"}
    what : str
        What to call it in the message, as ``generator``.

    Raises
    ------
    ValueError
        ``blob`` is no safetensors, or its names, shapes or dtypes are others.
    """
    try:
        received = safetensors.torch.load(blob)
    except SafetensorError as error:
        raise ValueError(
            f"the {what} received ({len(blob)} bytes) is no safetensors data: {error}"
        ) from error
    own = smaller_state(like, parameters, dtype)
    expected = {name: _describe(value) for name, value in own.items()}
    given = {name: _describe(value) for name, value in received.items()}
    differing = [
        f"{name} is {given.get(name, 'missing')}, expected {expected.get(name, 'nothing')}"
        for name in sorted(expected.keys() | given.keys())
        if expected.get(name) != given.get(name)
    ]
    if differing:
        raise ValueError(
            f"the {what} received does not fit the one built here: "
            + "; ".join(differing)
            + ". Server and client need the same settings, [wire] too, and version"
        )
    return {name: received[name].to(tensor.dtype) for name, tensor in like.items()}


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"

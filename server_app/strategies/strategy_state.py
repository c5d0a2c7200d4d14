"""What a strategy remembers from round to round, as named tensors for the checkpoint.

Wrappers say it themselves (:meth:`Wrapper.state_dict`). Flower's aggregators keep theirs in public
attributes but have no way to save them, so this file knows them. What they only set anew in every
round (FedOpt's ``current_arrays``) is no state.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.common import NDArray
from flwr.serverapp.strategy import FedAvgM, MultiKrum, Strategy
from flwr.serverapp.strategy.fedopt import FedOpt
from torch import Tensor

from server_app.errors import ResumeError
from server_app.strategies.wrapper import Wrapper, chain

State = dict[str, Tensor]


class StrategyStateError(ResumeError):
    """Saved state does not belong to this strategy; the message names what does not fit."""


def strategy_state(strategy: Strategy) -> State:
    """Return the state of a strategy and of all strategies inside it.

    Returns
    -------
    dict[str, Tensor]
        On the CPU or on the strategy's device; the names begin with the class of the strategy
        that each belongs to, as ``FedGen/trained``.
    """
    return {
        f"{type(each).__name__}/{name}": tensor
        for each in chain(strategy)
        for name, tensor in _own_state(each).items()
    }


def load_strategy_state(strategy: Strategy, state: Mapping[str, Tensor]) -> None:
    """Put a saved state back; the strategy then goes on as the one that was saved would have.

    Parameters
    ----------
    strategy : Strategy
        Newly built with the same settings.
    state : Mapping[str, Tensor]
        From :func:`strategy_state`.

    Raises
    ------
    StrategyStateError
        A strategy in ``state`` is not here, or its tensors don't fit.
    """
    parts: dict[str, State] = {type(each).__name__: {} for each in chain(strategy)}
    for name, tensor in state.items():
        owner, _, own_name = name.partition("/")
        if owner not in parts:
            raise StrategyStateError(
                f"the saved state holds {name!r}, but this run's strategies are "
                f"{', '.join(parts)}: resume it with the settings it was started with"
            )
        parts[owner][own_name] = tensor
    for each in chain(strategy):
        own = type(each).__name__
        try:
            _load_own_state(each, parts[own])
        except (KeyError, ValueError, RuntimeError) as error:
            raise StrategyStateError(f"the saved state of {own} does not fit: {error}") from error


def _own_state(strategy: Strategy) -> State:
    if isinstance(strategy, Wrapper):
        return strategy.state_dict()
    if isinstance(strategy, FedOpt):  # FedAdam, FedYogi
        return _pack("m_t", strategy.m_t or {}) | _pack("v_t", strategy.v_t or {})
    if isinstance(strategy, FedAvgM):
        # Its own copy of the model: integers in it are float64 and are not rounded.
        current = dict(strategy.current_arrays or {})
        velocity = {str(index): v for index, v in enumerate(strategy.momentum_vector or [])}
        return _pack("current_arrays", {name: a.numpy() for name, a in current.items()}) | _pack(
            "momentum_vector", velocity
        )
    if isinstance(strategy, MultiKrum):
        # Made from the number of clients at the start; at a resume others may be connected.
        return {"num_nodes_to_select": torch.tensor(strategy.num_nodes_to_select)}
    return {}


def _load_own_state(strategy: Strategy, state: State) -> None:
    if isinstance(strategy, Wrapper):
        strategy.load_state_dict(state)
    elif isinstance(strategy, FedOpt):
        strategy.m_t, strategy.v_t = _unpack("m_t", state) or None, _unpack("v_t", state) or None
    elif isinstance(strategy, FedAvgM):
        current = _unpack("current_arrays", state)
        strategy.current_arrays = (
            ArrayRecord({name: Array(values) for name, values in current.items()})
            if current
            else None
        )
        velocity = _unpack("momentum_vector", state)
        strategy.momentum_vector = _in_order(velocity) or None
    elif isinstance(strategy, MultiKrum):
        strategy.num_nodes_to_select = int(state["num_nodes_to_select"])
    elif state:
        raise ValueError(f"it keeps no state, but {sorted(state)} was saved")


def _pack(group: str, arrays: Mapping[str, NDArray]) -> State:
    # Zero-dimensional results of NumPy are scalars, not arrays.
    return {f"{group}/{name}": torch.from_numpy(np.array(a)) for name, a in arrays.items()}


def _unpack(group: str, state: State) -> dict[str, NDArray]:
    return {
        name.removeprefix(f"{group}/"): tensor.numpy().copy()
        for name, tensor in state.items()
        if name.startswith(f"{group}/")
    }


def _in_order(by_index: Mapping[str, NDArray]) -> list[NDArray]:
    return [by_index[str(index)] for index in range(len(by_index))]

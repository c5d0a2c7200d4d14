"""How what a client keeps for itself changes in a round.

The client computes it from its model, the server again from the client's reply: nothing more than
the model goes up. Named tensors in, named tensors out; ``received`` is theta^t, the model that the
client got, ``trained`` theta_k, the one it made of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Tensors = Mapping[str, Tensor]


def control_variate_change(
    received: Tensors, trained: Tensors, c: Tensors, steps: int, learning_rate: float
) -> dict[str, Tensor]:
    """Return SCAFFOLD's ``c_k' - c_k = -c + (theta^t - theta_k) / (K lr)``.

    Option II of Eq. 4 (Karimireddy et al., ICML 2020, arXiv:1910.06378). As plain SGD steps along
    ``g - c_k + c`` (Eq. 3), ``c_k'`` is the mean of the gradients g of the round's K steps.

    Parameters
    ----------
    received, trained, c : Mapping[str, Tensor]
        The same shapes; c is the server's control variate as the client got it.
    steps : int
        K, at least 1.
    learning_rate : float
        lr of the round, above 0.
    """
    distance = steps * learning_rate
    return {name: (received[name] - trained[name]) / distance - c[name] for name in c}


def gradient_change(received: Tensors, trained: Tensors, alpha: float) -> dict[str, Tensor]:
    """Return FedDyn's ``g_k' - g_k = -alpha (theta_k - theta^t)``.

    Algorithm 1 (Acar et al., ICLR 2021, arXiv:2111.04263): at the minimum of the local objective
    (its Eq. 1), ``g_k'`` is the gradient of the client's own loss.
    """
    return {name: alpha * (received[name] - trained[name]) for name in received}

"""The changes of SCAFFOLD's and FedDyn's client state against values derived by hand."""

import torch

from common.mirrored import control_variate_change, gradient_change


def test_a_control_variate_becomes_the_mean_gradient_of_the_round() -> None:
    # Two steps of plain SGD along g - c_k + c, with gradients 3 and 5, lr 1/2, c_k = 2, c = 1.
    theta, own, c = torch.tensor([10.0]), torch.tensor([2.0]), torch.tensor([1.0])
    trained = theta - 0.5 * (3 - own + c) - 0.5 * (5 - own + c)
    change = control_variate_change({"w": theta}, {"w": trained}, {"w": c}, 2, 0.5)
    assert (own + change["w"]).item() == 4.0  # (3 + 5) / 2


def test_feddyns_gradient_moves_against_the_way_that_the_client_went() -> None:
    change = gradient_change({"w": torch.tensor([1.0])}, {"w": torch.tensor([4.0])}, 0.25)
    assert change["w"].item() == -0.75  # -1/4 * (4 - 1)

"""FedProx's proximal term against values derived by hand."""

import pytest
import torch
from flwr.app import ConfigRecord
from torch import nn

from client_app.terms.proximal import Proximal, squared_distance
from common import records
from common.models import SplitModel


def test_distance_is_the_sum_of_squares_over_all_parameters() -> None:
    w = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    w_global = [torch.tensor([0.0, 4.0]), torch.tensor([[0.0]])]
    # 1^2 + (-2)^2 + 3^2, squared: the square root is nowhere.
    assert squared_distance(w, w_global).item() == 14.0


def test_penalty_is_half_mu_times_the_distance_and_pulls_back_to_the_global_weights() -> None:
    model = SplitModel(nn.Identity(), nn.Linear(1, 1, bias=False), 1, 1)
    nn.init.constant_(model.predictor.weight, 2.0)  # type: ignore[arg-type]
    term = Proximal()

    class Instruction:
        config = ConfigRecord({records.FEDPROX_MU: 0.1})

    class Step:
        pass

    term.begin(model, Instruction())  # type: ignore[arg-type]
    step = Step()
    step.model = model  # type: ignore[attr-defined]
    assert term.penalty(step).item() == 0.0  # type: ignore[arg-type]
    with torch.no_grad():
        model.predictor.weight.add_(3.0)  # type: ignore[operator,union-attr]
    penalty = term.penalty(step)  # type: ignore[arg-type]
    penalty.backward()  # type: ignore[no-untyped-call]
    assert penalty.item() == pytest.approx(0.1 / 2 * 9)
    assert model.predictor.weight.grad.item() == pytest.approx(0.1 * 3)  # type: ignore[union-attr,operator]

"""FedProx's proximal term against values derived by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from client_app.terms import Instruction, build_terms
from client_app.terms.proximal import Proximal, squared_distance
from common.models import SplitModel
from tests.client_app.terms.conftest import model_of, step_of
from tests.settings import make_settings


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
        settings = make_settings(**{"fedprox.mu": 0.1})

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


def test_without_a_shared_encoder_the_distance_is_over_the_predictor(
    instruction: Callable[..., Instruction],
) -> None:
    settings = {"algorithm": "fedprox", "model.sharing": "predictor"}
    (term,) = build_terms(make_settings(**settings))
    model = model_of(0)
    now = instruction(1, settings)
    term.begin(model, now)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.add_(7.0)
        model.predictor.bias.add_(2.0)  # type: ignore[operator,union-attr]
    # 0.1 / 2 * 3 * 2^2: three biases; the encoder's way counts for nothing.
    penalty = term.penalty(step_of(model, now.data, 0, 1))
    assert penalty.item() == pytest.approx(0.6)

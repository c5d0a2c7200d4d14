"""MOON's contrastive loss against values derived by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from client_app.terms.contrastive import model_contrastive_loss, moving_average, similarities


def test_similarity_is_the_cosine_to_each_frozen_model() -> None:
    z = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    z_frozen = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[-3.0, -4.0], [5.0, 0.0]]])
    # Row 1: the same direction, the opposite one. Row 2: a right angle, the same direction.
    torch.testing.assert_close(similarities(z, z_frozen), torch.tensor([[1.0, -1.0], [0.0, 1.0]]))


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_loss_is_log_two_when_both_frozen_models_agree(temperature: float) -> None:
    sim = torch.tensor([[0.3, 0.3], [-0.9, -0.9]])
    # exp(s)/(exp(s)+exp(s)) = 1/2 whatever s and tau are.
    assert model_contrastive_loss(sim, temperature).item() == pytest.approx(math.log(2))


def test_loss_with_k_negatives_is_the_papers_closed_form() -> None:
    tau, positive, negatives = 0.5, 0.8, (0.1, -0.4, 0.6)
    numerator = math.exp(positive / tau)
    expected = -math.log(numerator / (numerator + sum(math.exp(s / tau) for s in negatives)))
    loss = model_contrastive_loss(torch.tensor([[positive, *negatives]]), tau)
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_loss_is_the_mean_over_the_batch() -> None:
    # tau 1: -log(1/(1+exp(-1-1))) for (1, -1) and -log(1/(1+exp(2))) for (-1, 1).
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 2
    loss = model_contrastive_loss(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), 1.0)
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_loss_and_gradient_stay_finite_at_a_tiny_temperature() -> None:
    sim = torch.tensor([[-1.0, 1.0]], requires_grad=True)
    loss = model_contrastive_loss(sim, 1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    # (1 - (-1)) / 1e-6: exp of that overflows, its log does not.
    assert loss.item() == pytest.approx(2e6, rel=1e-5)
    assert sim.grad is not None
    assert torch.isfinite(sim.grad).all()


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0.05, 5))
def test_loss_with_one_negative_is_softplus_of_the_difference(
    positive: float, negative: float, tau: float
) -> None:
    loss = model_contrastive_loss(torch.tensor([[positive, negative]], dtype=torch.float64), tau)
    difference = (negative - positive) / tau
    expected = max(difference, 0) + math.log1p(math.exp(-abs(difference)))
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_moving_average_weighs_from_the_first_model_on() -> None:
    average: dict[str, torch.Tensor] = {}
    for count, value in enumerate([1.0, 2.0, 6.0], start=1):
        newest = {"w": torch.tensor([value]), "batches": torch.tensor(10 * count)}
        average = moving_average(average or newest, newest, 0.5, count)
    # Weights 1/4, 1/2, 1 over 7/4: (1 + 4 + 24) / 7. What is counted is not averaged.
    assert average["w"].item() == pytest.approx(29 / 7)
    assert average["batches"].item() == 30


def test_a_slow_moving_average_of_few_models_is_nearly_their_mean() -> None:
    models = [{"w": torch.tensor([float(value)])} for value in (1, 2, 3, 4)]
    average = models[0]
    for count, newest in enumerate(models, start=1):
        average = moving_average(average, newest, 0.999, count)
    assert average["w"].item() == pytest.approx(2.5, abs=0.01)

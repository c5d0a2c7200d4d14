"""FedGen's client terms against values derived by hand."""

import math

import pytest
import torch

from client_app.terms.generative import prediction_divergence


def test_divergence_is_zero_for_equal_predictions() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    # Softmax is the same when a constant is added.
    assert prediction_divergence(logits, logits + 5).item() == pytest.approx(0, abs=1e-7)


def test_divergence_is_kl_of_the_generated_to_the_real_output_over_the_batch() -> None:
    # softmax = (1/2, 1/2) for the real x, (3/4, 1/4) for G(y); the second example agrees.
    real = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    generated = torch.tensor([[math.log(3.0), 0.0], [1.0, 1.0]])
    expected = (0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)) / 2
    assert prediction_divergence(real, generated).item() == pytest.approx(expected, rel=1e-6)


def test_divergence_sends_no_gradient_to_the_generated_output() -> None:
    real = torch.tensor([[0.0, 1.0]], requires_grad=True)
    generated = torch.tensor([[1.0, 0.0]], requires_grad=True)
    prediction_divergence(real, generated).backward()  # type: ignore[no-untyped-call]
    assert generated.grad is None
    assert real.grad is not None
    # d KL(q || softmax(l)) / dl = softmax(l) - q, with q_1 = 1/(1+e) and p_1 = e/(1+e).
    q, p = 1 / (1 + math.e), math.e / (1 + math.e)
    torch.testing.assert_close(real.grad, torch.tensor([[(1 - p) - (1 - q), p - q]]))

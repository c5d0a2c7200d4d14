"""FedLC, FedRS, FedNTD and FedDecorr against values derived by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from client_app.terms import Instruction, build_terms
from client_app.terms.feddecorr import squared_correlation
from client_app.terms.fedlc import calibrated_logits
from client_app.terms.fedntd import not_true_divergence
from client_app.terms.fedrs import restricted_logits
from tests.client_app.terms.conftest import model_of, step_of
from tests.settings import make_settings


def test_a_class_of_sixteen_examples_has_half_the_margin_of_a_class_of_one() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    # 16^(-1/4) = 1/2, 1^(-1/4) = 1; of no example the margin has no limit.
    found = calibrated_logits(logits, torch.tensor([16, 1, 0]), tau=3.0)
    torch.testing.assert_close(found, torch.tensor([[1.0 - 1.5, 2.0 - 3.0, -math.inf]]))


def test_calibrated_loss_pushes_no_class_without_examples() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    calibrated = calibrated_logits(logits, torch.tensor([1, 1, 0]), tau=1.0)
    F.cross_entropy(calibrated, torch.tensor([0])).backward()  # type: ignore[no-untyped-call]
    # Softmax over the two that are here: (1/2, 1/2), minus the label.
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.5, 0.5, 0.0]]))


def test_logits_of_classes_that_a_client_lacks_are_scaled_down() -> None:
    logits = torch.tensor([[1.0, -2.0, 4.0]])
    found = restricted_logits(logits, torch.tensor([True, False, False]), alpha=0.5)
    torch.testing.assert_close(found, torch.tensor([[1.0, -1.0, 2.0]]))


def test_not_true_divergence_leaves_the_label_out_of_both_softmaxes() -> None:
    # tau 2. Label 1: left are (0, 2 ln 3) -> q_local = (1/4, 3/4), and (0, 0) -> q_global = 1/2.
    local = torch.tensor([[0.0, 100.0, 2 * math.log(3)]])
    taught = torch.tensor([[0.0, -50.0, 0.0]])
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    found = not_true_divergence(local, taught, torch.tensor([1]), temperature=2.0)
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_not_true_divergence_gives_the_label_and_the_teacher_no_gradient() -> None:
    local = torch.tensor([[0.3, -1.0, 2.0]], requires_grad=True)
    taught = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True)
    found = not_true_divergence(local, taught, torch.tensor([0]), temperature=1.0)
    found.backward()  # type: ignore[no-untyped-call]
    assert taught.grad is None
    assert local.grad is not None
    assert local.grad[0, 0] == 0
    assert local.grad[0, 1:].abs().min() > 0.1


def test_not_true_divergence_of_two_classes_is_zero() -> None:
    logits, taught = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, -2.0]])
    assert not_true_divergence(logits, taught, torch.tensor([1]), 1.0).item() == 0


def test_squared_correlation_is_one_where_all_agree_and_one_over_d_where_none_do() -> None:
    ones = torch.tensor([1.0, -1.0, 1.0, -1.0])
    other = torch.tensor([1.0, 1.0, -1.0, -1.0])
    # Four ones in the matrix of d = 2, over 4; then the diagonal alone, 2 over 4.
    alike = squared_correlation(torch.stack([ones, -5 * ones], dim=1))
    apart = squared_correlation(torch.stack([ones, 3 * other], dim=1))
    assert alike.item() == pytest.approx(1.0, rel=1e-5)
    assert apart.item() == pytest.approx(0.5, rel=1e-5)


def test_squared_correlation_of_one_example_or_of_a_constant_is_finite() -> None:
    assert squared_correlation(torch.ones(1, 3)).item() == 0
    z = torch.zeros(4, 2, requires_grad=True)
    squared_correlation(z).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize(
    ("algorithm", "numbers"),
    [("fedlc", {"fedlc.tau": 2.0}), ("fedrs", {"fedrs.alpha": 0.25})],
)
def test_base_loss_and_penalty_are_the_loss_of_the_changed_logits(
    algorithm: str, numbers: dict[str, Any], instruction: Callable[..., Instruction]
) -> None:
    (term,) = build_terms(make_settings(algorithm=algorithm, **numbers))
    model, now = model_of(0), instruction(1, {"algorithm": algorithm, **numbers})
    term.begin(model, now)
    step = step_of(model, now.data, 0, 4, 5)
    counts = torch.tensor([5, 3, 0])  # of the client in conftest.py
    changed = (
        calibrated_logits(step.output, counts, 2.0)
        if algorithm == "fedlc"
        else restricted_logits(step.output, counts > 0, 0.25)
    )
    total = step.loss + term.penalty(step)
    torch.testing.assert_close(total, F.cross_entropy(changed, step.y))


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_the_teacher_of_fedntd_is_the_model_of_the_rounds_start(
    augmentation: str, instruction: Callable[..., Instruction]
) -> None:
    numbers = {"algorithm": "fedntd", "fedntd.beta": 3.0, "data.augmentation": augmentation}
    (term,) = build_terms(make_settings(**numbers))
    model, now = model_of(0), instruction(1, numbers)
    term.begin(model, now)
    taught = model.eval()(now.data.train.take(torch.arange(8)))
    model.train()
    with torch.no_grad():
        model.predictor.weight.mul_(-2.0)  # type: ignore[operator,union-attr]
    step = step_of(model, now.data, 1, 6)
    expected = 3 * not_true_divergence(step.output, taught[[1, 6]], step.y, 1.0)
    assert expected.item() > 0
    torch.testing.assert_close(term.penalty(step), expected)

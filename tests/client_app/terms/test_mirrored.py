"""SCAFFOLD's and FedDyn's terms over the rounds of one client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from client_app.terms import Instruction, Term
from client_app.terms.feddyn import FedDyn
from client_app.terms.mirrored import inner_product, own_of, shared_values
from client_app.terms.scaffold import Scaffold
from common import records
from common.models import SplitModel
from common.second_model import pack_model
from tests.client_app.terms.conftest import model_of, step_of

Make = Callable[..., Instruction]
PLAIN = {"train.momentum": 0.0, "train.learning-rate": 0.5}


def move(model: SplitModel, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def play(term: Term, model: SplitModel, now: Instruction, by: float = 0.0) -> None:
    """Begin, take a step, move all weights, end."""
    term.begin(model, now)
    term.penalty(step_of(model, now.data, 0, 1))
    move(model, by)
    term.end(model)


def kept(now: Instruction, counted: int, part: str) -> float:
    """Return the value that all of the client's own have in the next round."""
    after = replace(now, server_round=now.server_round + 1, counted=counted)
    values = own_of(after, part, shared_values(model_of(1), after))
    (value,) = {round(float(each), 5) for own in values.values() for each in own.flatten()}
    return value


def test_an_inner_product_is_zero_and_has_the_direction_as_its_gradient() -> None:
    model = model_of(1)
    direction = {name: torch.full_like(p, 3.0) for name, p in model.named_parameters()}
    product = inner_product(model, direction)
    product.backward()  # type: ignore[no-untyped-call]
    assert product.item() == 0.0
    assert all(p.grad is not None and (p.grad == 3).all() for p in model.parameters())


def test_scaffolds_gradient_is_c_minus_the_clients_own(instruction: Make) -> None:
    model, now, term = model_of(1), instruction(1, PLAIN), Scaffold()
    # One step of lr 1/2 from w to w - 1: the mean gradient is 1 / (1 * 1/2) = 2.
    play(term, model, now, by=-1.0)
    c = {name: torch.full_like(p.data, 5.0) for name, p in model.named_parameters()}
    blob = pack_model(c, set(c), "float32")
    after = replace(instruction(2, PLAIN, **{records.SCAFFOLD_C: blob}), counted=1)
    term.begin(model, after)
    model.zero_grad()
    term.penalty(step_of(model, after.data, 0, 1)).backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        torch.testing.assert_close(parameter.grad, torch.full_like(parameter, 5.0 - 2.0))


def test_feddyns_penalty_is_the_quadratic_part_and_its_gradient_that_of_both(
    instruction: Make,
) -> None:
    settings = {"feddyn.alpha": 0.5}
    model, now, term = model_of(1), instruction(1, settings), FedDyn()
    play(term, model, now, by=2.0)  # g_k = -1/2 * 2
    after = replace(instruction(2, settings), counted=1)
    term.begin(model, after)
    move(model, 1.0)
    penalty = term.penalty(step_of(model, after.data, 0, 1))
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert penalty.item() == pytest.approx(0.5 / 2 * weights)  # every weight is 1 away
    model.zero_grad()
    penalty.backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():  # -g_k + alpha * 1
        torch.testing.assert_close(parameter.grad, torch.full_like(parameter, 1.0 + 0.5))


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_a_client_goes_on_from_the_last_of_its_rounds_that_counted(
    instruction: Make, name: str
) -> None:
    def term() -> Term:
        return Scaffold() if name == "scaffold" else FedDyn()

    settings = {**PLAIN, "feddyn.alpha": 2.0}
    first = instruction(1, settings)
    play(term(), model_of(1), first, by=-1.0)  # own: 2 (scaffold: 1 / lr; feddyn: alpha * 1)
    assert kept(first, 1, name) == 2.0
    assert kept(first, 0, name) == 0.0, "the reply of round 1 did not count"
    for server_round in (2, 3, 4, 5):  # none of these counts
        now = replace(instruction(server_round, settings), counted=1)
        play(term(), model_of(1), now, by=-3.0)
        assert kept(now, 1, name) == 2.0
    # scaffold: the mean gradient 6 + c_k - c = 6 + 2 - 0; feddyn: 2 + 2 * 3.
    assert kept(now, 5, name) == 8.0

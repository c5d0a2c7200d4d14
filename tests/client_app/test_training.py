"""The local loop: cross-entropy plus penalties, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from flwr.app import RecordDict
from torch import Tensor, nn

from client_app.optimizer import Optimizer, build_optimizer
from client_app.terms import Instruction
from client_app.training import train
from common.data import Batch
from common.models import SplitModel
from common.tasks import Step
from common.tasks.classification import Classification
from tests.settings import make_settings

TASK = Classification(2)


def linear_model() -> SplitModel:
    model = SplitModel(nn.Flatten(), nn.Linear(2, 2, bias=False), 2, 2)
    nn.init.zeros_(model.predictor.weight)  # type: ignore[arg-type]
    return model


def batch_of(*rows: list[float], y: list[int]) -> Batch:
    return Batch(torch.tensor(rows), torch.tensor(y), torch.arange(len(y)))


class Shrink:
    """A term with a known gradient: the sum of the predictor's weights."""

    name = "shrink"
    models_kept = 0

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        pass

    def penalty(self, step: Step) -> Tensor:
        self.seen = step
        return step.model.predictor.weight.sum()  # type: ignore[union-attr,operator]

    def metrics(self) -> Mapping[str, Tensor]:
        return {"weight-of-things": torch.tensor(6.0)}

    def end(self, model: SplitModel) -> RecordDict:
        return RecordDict()


def sgd(model: SplitModel, learning_rate: float) -> Optimizer:
    return build_optimizer(
        model,
        make_settings(**{"train.momentum": 0.0, "train.weight-decay": 0.0}).train,
        learning_rate,
    )


def test_a_step_is_gradient_descent_on_cross_entropy() -> None:
    model = linear_model()
    metrics = train(TASK, model, [batch_of([1.0, 2.0], y=[0])], [], sgd(model, 0.5))
    # Logits 0: p = (1/2, 1/2), dCE/dW = (p - onehot) x = [[-1/2, -1], [1/2, 1]].
    expected = torch.tensor([[0.25, 0.5], [-0.25, -0.5]])
    torch.testing.assert_close(model.predictor.weight.data, expected)
    assert metrics["loss"] == pytest.approx(math.log(2))
    assert metrics == {"loss": metrics["loss"], "cross-entropy": metrics["loss"], "steps": 1.0}


def test_penalties_add_to_the_loss_and_to_the_gradient() -> None:
    model, terms = linear_model(), [Shrink(), Shrink()]
    batches = [batch_of([0.0, 0.0], y=[1])] * 2
    metrics = train(TASK, model, batches, terms, sgd(model, 0.5))
    # x = 0: cross-entropy has no gradient. Each term adds 1 per weight: two steps of -0.5 * 2.
    torch.testing.assert_close(model.predictor.weight.data, torch.full((2, 2), -2.0))
    # Penalty 0 in the first step and 4 * (-1) in the second: mean -2, for each of both terms.
    assert metrics["shrink"] == pytest.approx(-2.0)
    assert metrics["loss"] == pytest.approx(math.log(2) - 4.0)
    assert metrics["weight-of-things"] == 3.0  # the sum 6 over two steps


def test_a_term_sees_the_batch_its_indices_and_both_outputs() -> None:
    model, term = linear_model(), Shrink()
    batch = Batch(torch.tensor([[1.0, 2.0]]), torch.tensor([1]), torch.tensor([17]))
    train(TASK, model, [batch], [term], sgd(model, 0.1))
    torch.testing.assert_close(term.seen.z, batch.x)
    assert term.seen.output.shape == (1, 2)
    assert term.seen.index.item() == 17
    assert term.seen.model is model


def test_a_batch_of_one_trains_through_batch_norm_and_leaves_its_statistics() -> None:
    encoder = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model = SplitModel(encoder, nn.Linear(3, 2), 3, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(TASK, model, [batch_of([1.0, 2.0], y=[0])], [], sgd(model, 0.1))
    after = model.state_dict()
    torch.testing.assert_close(after["encoder.1.running_mean"], before["encoder.1.running_mean"])
    assert not torch.equal(after["encoder.0.weight"], before["encoder.0.weight"])
    assert all(module.training for module in model.modules())


def test_no_batches_leave_the_model_as_it_is() -> None:
    model = linear_model()
    metrics = train(TASK, model, [], [Shrink()], sgd(model, 0.1))
    assert metrics["steps"] == 0.0
    assert metrics["loss"] == 0.0
    assert torch.equal(model.predictor.weight.data, torch.zeros(2, 2))

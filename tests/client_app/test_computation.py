"""Precision, layout and compilation change how a step is computed, and not what it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from client_app.computation import Computation, check_computation
from client_app.training import train
from common import records
from common.config import SettingsError
from common.data import Batch
from common.models import SplitModel
from tests.client_app.test_training import TASK, batch_of, linear_model, sgd
from tests.settings import make_settings

CPU = torch.device("cpu")


def convolutional_model() -> SplitModel:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
    return SplitModel(encoder, nn.Linear(4 * 6 * 6, 2), 4 * 6 * 6, 2)


def images() -> list[Batch]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(4, 3, 8, 8, generator=random)
    return [Batch(x, torch.tensor([0, 1, 0, 1]), torch.arange(4))] * 3


def trained(computation: Computation | None) -> SplitModel:
    """Return a convolutional model after three steps."""
    model = convolutional_model()
    computation = computation or Computation()
    train(TASK, computation.arrange(model), images(), [], sgd(model, 0.1), computation)
    return model


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_forward_pass_is_in_the_precision_and_its_outputs_and_weights_are_float32(
    precision: str,
) -> None:
    model, seen = linear_model(), list[torch.dtype]()
    model.predictor.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    computation = Computation(CPU, precision=precision)
    train(TASK, model, [batch_of([1.0, 0.5], y=[0])], [], sgd(model, 0.5), computation)
    assert seen == [getattr(torch, precision)]
    # p = (1/2, 1/2), dCE/dW = (p - onehot) x = [[-1/2, -1/4], [1/2, 1/4]]: exact in both
    # precisions. In float16 the loss is scaled by 2**16, and the gradient back again.
    weight = model.predictor.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, torch.tensor([[0.25, 0.125], [-0.25, -0.125]]))


def test_a_step_that_overflows_float16_is_left_out_and_the_next_is_scaled_less() -> None:
    model = linear_model()
    computation = Computation(CPU, precision="float16")
    # dCE/dlogits = 1/2, scaled 2**15; times x = 16 it is 2**19, and float16 ends at 65504. After
    # 4 halvings it is 2**15: four steps are left out, the fifth is taken, -0.5 * (-1/2) * 16.
    batch = batch_of([16.0, 0.0], y=[0])
    optimizer = sgd(model, 0.5)
    train(TASK, model, [batch] * 4, [], optimizer, computation)
    assert torch.equal(model.predictor.weight, torch.zeros(2, 2))
    train(TASK, model, [batch], [], optimizer, computation)
    assert torch.equal(model.predictor.weight, torch.tensor([[4.0, 0.0], [-4.0, 0.0]]))


def test_lower_precision_comes_near_float32_and_is_not_it() -> None:
    exact, lower = trained(None), trained(Computation(CPU, precision="bfloat16"))
    for name, value in exact.state_dict().items():
        torch.testing.assert_close(lower.state_dict()[name], value, rtol=0.05, atol=0.01)
    assert not torch.equal(lower.predictor.weight, exact.predictor.weight)


def test_channels_last_lays_weights_and_images_out_anew_and_sends_the_same_arrays() -> None:
    computation, seen = Computation(CPU, channels_last=True), list[Tensor]()
    model = computation.arrange(convolutional_model())
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    train(TASK, model, images()[:1], [], sgd(model, 0.1), computation)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    weight = model.state_dict()["encoder.0.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    received = records.to_tensors(records.to_arrays(model.state_dict()))
    assert torch.equal(received["encoder.0.weight"], weight)
    expected = trained(None).state_dict()
    for name, value in trained(computation).state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_float16_without_a_gpu_is_refused() -> None:
    settings = make_settings(**{"train.precision": "float16"}).train
    with pytest.raises(SettingsError, match=r"needs a GPU.*'bfloat16'"):
        check_computation(settings, CPU)
    check_computation(settings, torch.device("cuda"))
    check_computation(make_settings(**{"train.precision": "bfloat16"}).train, CPU)

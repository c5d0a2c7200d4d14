"""FedGen's generator, its noise, labels, diversity loss and bytes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from common.config import WireDtype
from common.generator import (
    Generator,
    build_generator,
    check_prior,
    diversity_loss,
    draw_noise,
    generator_from_bytes,
    generator_to_bytes,
    sample_labels,
)
from tests.settings import make_settings


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(**changes: Any) -> Generator:
    arguments = {
        "num_classes": 3,
        "latent_dim": 4,
        "noise_dim": 2,
        "hidden_dim": 5,
        "label_input": "one-hot",
    }
    return Generator(**(arguments | changes))


def trained(generator: Generator, steps: int = 3) -> Generator:
    """Take steps, so that BatchNorm's statistics differ from the initial ones."""
    optimiser = torch.optim.SGD(generator.parameters(), lr=0.1)
    random = seeded(1)
    for _ in range(steps):
        noise = torch.randn(8, generator.noise_dim, generator=random)
        y = torch.randint(generator.num_classes, (8,), generator=random)
        optimiser.zero_grad()
        generator(noise, y).square().mean().backward()
        optimiser.step()
    return generator


def test_the_hidden_layer_reads_noise_and_a_one_hot_label() -> None:
    # Parameters: hidden (2 + 3) * 5 + 5, norm 2 * 5, output 5 * 4 + 4.
    generator = small()
    assert sum(value.numel() for value in generator.parameters()) == 30 + 10 + 24
    assert generator(torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])).shape == (6, 4)


def test_an_embedded_label_has_the_size_of_the_noise() -> None:
    # Parameters: embedding 3 * 2, hidden (2 + 2) * 5 + 5, norm 2 * 5, output 5 * 4 + 4.
    generator = small(label_input="embedding")
    assert sum(value.numel() for value in generator.parameters()) == 6 + 25 + 10 + 24
    assert generator(torch.zeros(2, 2), torch.tensor([2, 0])).shape == (2, 4)


def test_an_unknown_label_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'words'.*'one-hot' and 'embedding'"):
        small(label_input="words")


def test_forward_is_linear_norm_relu_linear() -> None:
    # In eval mode fresh BatchNorm divides by sqrt(1 + 1e-5) only. One noise value e, two labels;
    # hidden unit 0 is e + 2 * [y = 1], unit 1 is -e; z = unit 0 - 3 * unit 1 + 0.5.
    generator = small(num_classes=2, latent_dim=1, noise_dim=1, hidden_dim=2).eval()
    with torch.no_grad():
        generator.hidden.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [-1.0, 0.0, 0.0]]))
        generator.hidden.bias.zero_()
        generator.output.weight.copy_(torch.tensor([[1.0, -3.0]]))
        generator.output.bias.fill_(0.5)
    z = generator(torch.tensor([[1.0], [1.0], [-1.0]]), torch.tensor([0, 1, 0]))
    # Hidden after ReLU: (1, 0), (3, 0), (0, 1).
    scale = 1 / math.sqrt(1 + 1e-5)
    expected = [scale + 0.5, 3 * scale + 0.5, -3 * scale + 0.5]
    assert z.squeeze(1).tolist() == pytest.approx(expected, rel=1e-6)


def test_one_seed_builds_the_same_generator_and_leaves_the_global_one_alone() -> None:
    settings = make_settings(**{"fedgen.noise-dim": 3, "fedgen.hidden-dim": 7}).fedgen
    before = torch.get_rng_state()
    first, second, other = (build_generator(settings, 10, 32, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert generator_to_bytes(first) == generator_to_bytes(second)
    assert generator_to_bytes(first) != generator_to_bytes(other)
    assert first.hidden.weight.shape == (7, 13)
    assert first.output.weight.shape == (32, 7)


def test_normal_noise_has_mean_0_and_variance_1() -> None:
    noise = draw_noise("normal", 20_000, 2, seeded())
    # Standard errors: 1 / sqrt(40000) = 0.005 of the mean, sqrt(2) times that of the variance.
    assert abs(noise.mean().item()) < 0.025
    assert abs(noise.var().item() - 1) < 0.035
    assert noise.shape == (20_000, 2)


def test_uniform_noise_lies_in_0_to_1_with_mean_one_half() -> None:
    noise = draw_noise("uniform", 20_000, 2, seeded())
    assert 0 <= noise.min() < 0.01
    assert 0.99 < noise.max() < 1
    assert abs(noise.mean().item() - 0.5) < 0.01


def test_noise_depends_on_its_generator_only() -> None:
    torch.manual_seed(3)
    first = draw_noise("normal", 4, 2, seeded(5))
    torch.manual_seed(4)
    assert torch.equal(draw_noise("normal", 4, 2, seeded(5)), first)
    assert not torch.equal(draw_noise("normal", 4, 2, seeded(6)), first)


def test_unknown_noise_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'pink'.*'normal' and 'uniform'"):
        draw_noise("pink", 1, 1, seeded())  # type: ignore[arg-type]


def test_labels_follow_the_prior_and_impossible_ones_never_come() -> None:
    labels = sample_labels(torch.tensor([0.0, 1.0, 3.0]), 8_000, seeded())
    counts = torch.bincount(labels, minlength=3).tolist()
    assert labels.dtype == torch.int64
    assert counts[0] == 0
    # 6000 expected; the standard deviation is sqrt(8000 * 0.75 * 0.25) = 39.
    assert abs(counts[2] - 6_000) < 200


@pytest.mark.parametrize(
    "prior",
    [[0.0, 0.0], [0.5, -0.1], [0.5, math.nan], [math.inf, 1.0], [[0.5, 0.5]], []],
    ids=["all zero", "negative", "nan", "inf", "two dimensions", "empty"],
)
def test_a_prior_that_is_no_distribution_is_refused(prior: list[Any]) -> None:
    with pytest.raises(ValueError, match="no distribution"):
        check_prior(torch.tensor(prior))


def test_diversity_of_two_samples_in_one_dimension() -> None:
    # eps 0 and 2: squared distance 4; z 1 and 4: distance 3; of the 4 pairs 2 differ:
    # mean = 2 * 12 / 4 = 6.
    loss = diversity_loss(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [4.0]]))
    assert loss.item() == pytest.approx(math.exp(-6))


def test_diversity_takes_means_over_the_components() -> None:
    # eps differ by (1, 3): mean square 5. z differ by (1, 2, 3): mean 2. 2 * 10 / 4 = 5.
    noise = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    z = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 2.0, -3.0]])
    assert diversity_loss(noise, z).item() == pytest.approx(math.exp(-5))


def test_diversity_pairs_each_noise_with_its_own_z() -> None:
    # Three 1-d samples: squares 1, 9, 4 and distances 1, 2, 1 for pairs 01, 02, 12:
    # mean = 2 * (1 * 1 + 9 * 2 + 4 * 1) / 9 = 46 / 9.
    loss = diversity_loss(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[0.0], [1.0], [2.0]]))
    assert loss.item() == pytest.approx(math.exp(-46 / 9))


def test_a_collapsed_generator_has_diversity_loss_1_and_no_nan_gradient() -> None:
    z = torch.ones(4, 2, requires_grad=True)
    loss = diversity_loss(torch.randn(4, 3, generator=seeded()), z)
    loss.backward()
    assert loss.item() == 1
    assert torch.isfinite(z.grad).all()


def test_the_gradient_of_the_diversity_loss_pushes_z_apart() -> None:
    z = torch.tensor([[0.0], [1.0]], requires_grad=True)
    diversity_loss(torch.tensor([[0.0], [1.0]]), z).backward()
    # loss = exp(-(z1 - z0) / 2): d/dz1 = -exp(-1/2) / 2, d/dz0 the opposite.
    expected = math.exp(-0.5) / 2
    assert z.grad.squeeze(1).tolist() == pytest.approx([expected, -expected])


@pytest.mark.parametrize("label_input", ["one-hot", "embedding"])
def test_bytes_carry_weights_and_batch_norm_buffers(label_input: str) -> None:
    sent = trained(small(label_input=label_input))
    received = generator_from_bytes(small(label_input=label_input), generator_to_bytes(sent))
    assert received.norm.num_batches_tracked.item() == 3
    assert torch.equal(received.norm.running_mean, sent.norm.running_mean)
    noise, y = torch.randn(5, 2, generator=seeded()), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(received.eval()(noise, y), sent.eval()(noise, y))


def test_bytes_of_another_shape_are_refused_by_name_and_change_nothing() -> None:
    generator = small()
    before = generator_to_bytes(generator)
    with pytest.raises(ValueError, match=r"hidden.weight is float32 \[6, 5\], expected .*\[5, 5\]"):
        generator_from_bytes(generator, generator_to_bytes(small(hidden_dim=6)))
    assert generator_to_bytes(generator) == before


def test_bytes_with_a_missing_and_an_unknown_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"embedding.weight is missing, expected float32 \[3, 2\]"):
        generator_from_bytes(small(label_input="embedding"), generator_to_bytes(small()))
    with pytest.raises(ValueError, match=r"embedding.weight is float32 \[3, 2\], expected nothing"):
        generator_from_bytes(small(), generator_to_bytes(small(label_input="embedding")))


@pytest.mark.parametrize("blob", [b"", b"not safetensors", generator_to_bytes(small())[:-1]])
def test_bytes_that_are_no_safetensors_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="no safetensors"):
        generator_from_bytes(small(), blob)


def test_half_precision_is_refused_rather_than_converted() -> None:
    half = small()
    half.output = nn.Linear(5, 4).half()
    with pytest.raises(ValueError, match=r"output.bias is float16"):
        generator_from_bytes(small(), generator_to_bytes(half))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_smaller_generator_has_float16_parameters_and_statistics_as_they_are(
    dtype: WireDtype,
) -> None:
    sent, received = small(), small()
    torch.nn.init.constant_(sent.output.bias, 0.1)
    sent.norm.running_var.fill_(1e9)
    blob = generator_to_bytes(sent, dtype)
    assert len(blob) < len(generator_to_bytes(sent))
    generator_from_bytes(received, blob, dtype)
    # 0.1 as float16 is 1638 * 2**-14
    assert set(received.output.bias.tolist()) == {1638 * 2**-14}
    assert received.output.bias.dtype == torch.float32
    assert set(received.norm.running_var.tolist()) == {1e9}


def test_a_generator_in_another_dtype_than_the_settings_say_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hidden.bias is float16 .*\[wire\]"):
        generator_from_bytes(small(), generator_to_bytes(small(), "float16"))

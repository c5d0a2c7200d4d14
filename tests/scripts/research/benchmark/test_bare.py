"""The bare loops compute what the app computes, so that their seconds can be compared."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from scripts.moonflower.research.benchmark.generator_training import (
    KINDS,
    app_teacher,
    app_training,
    bare_teacher,
    bare_training,
    make_federation,
)
from scripts.moonflower.research.benchmark.one_client import (
    Client,
    app_round,
    bare_fedgen,
    bare_moon,
    open_client,
    settings_of,
)
from scripts.moonflower.research.benchmark.sizes import Sizes

CPU = torch.device("cpu")


@contextmanager
def client(preset: str, **overrides: Any) -> Iterator[Client]:
    """Open a client of 70 examples: more than one batch, and a last one that is dropped."""
    dotted = {name.replace("__", ".").replace("_", "-"): each for name, each in overrides.items()}
    with open_client(settings_of(preset, Sizes(), dotted), 70, CPU) as opened:
        yield opened


def assert_same_weights(one: nn.Module, other: nn.Module, before: nn.Module) -> None:
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-4, atol=1e-6)
    first = next(iter(before.parameters()))
    assert not torch.equal(next(iter(one.parameters())), first), "nothing was trained"


@pytest.mark.parametrize(
    ("augmentation", "once"), [("none", True), ("none", False), ("crop-flip", False)]
)
def test_moons_bare_loop_gives_the_apps_weights_and_loss(augmentation: str, once: bool) -> None:
    with client(
        "moon-cifar10", train__local_epochs=3, train__batch_size=32, data__augmentation=augmentation
    ) as opened:
        by_app, by_bare = copy.deepcopy(opened.model), copy.deepcopy(opened.model)
        metrics = app_round(opened, by_app)
        loss = bare_moon(opened, by_bare, once=once)
        assert metrics["steps"] == 6  # 70 // 32 batches in each of 3 epochs
        assert metrics["moon"] > 0  # the previous model was found and contrasted
        assert loss == pytest.approx(metrics["loss"], rel=1e-5)
        assert_same_weights(by_app, by_bare, opened.model)


def test_the_uncached_app_gives_the_cached_ones_weights() -> None:
    with client("moon-cifar10", train__local_epochs=2, data__augmentation="none") as opened:
        forgetful = settings_of("moon-cifar10", Sizes(), {"data.augmentation": "crop-flip"})
        cached, uncached = copy.deepcopy(opened.model), copy.deepcopy(opened.model)
        app_round(opened, cached)
        app_round(opened, uncached, begun_with=forgetful)
        assert_same_weights(cached, uncached, opened.model)


@pytest.mark.parametrize("beta", [0.0, 10.0])
def test_fedgens_bare_loop_gives_the_apps_weights_and_loss(beta: float) -> None:
    with client("fedgen-official", train__local_steps=5, fedgen__beta=beta) as opened:
        by_app, by_bare = copy.deepcopy(opened.model), copy.deepcopy(opened.model)
        metrics = app_round(opened, by_app)
        loss = bare_fedgen(opened, by_bare)
        assert metrics["steps"] == 5
        assert (metrics["generated-kl"] > 0) == (beta > 0)
        assert loss == pytest.approx(metrics["loss"], rel=1e-5)
        assert_same_weights(by_app, by_bare, opened.model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_over_clients_gives_the_apps_generator_and_loss(kind: str) -> None:
    federation = make_federation(kind, 3, 4, CPU)
    by_app, by_bare = (copy.deepcopy(federation.generator) for _ in range(2))
    loss = app_training(federation, by_app)
    assert bare_training(federation, by_bare) == pytest.approx(loss, rel=1e-5)
    # Adam divides by the gradient's size: a rounding error of a tiny gradient is not tiny.
    for name, value in by_app.state_dict().items():
        torch.testing.assert_close(value, by_bare.state_dict()[name], rtol=1e-3, atol=2e-4)
    assert not torch.equal(by_app.output.weight, federation.generator.output.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_over_clients_gives_the_apps_teacher_and_its_gradient(kind: str) -> None:
    federation = make_federation(kind, 3, 1, CPU)
    (loss, gradient), (bare_loss, bare_gradient) = app_teacher(federation), bare_teacher(federation)
    torch.testing.assert_close(loss, bare_loss)
    torch.testing.assert_close(gradient, bare_gradient)
    assert gradient.abs().max() > 0

"""Part c: training FedGen's generator on many heads, next to a loop over the clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common.config import FedGenSettings, parse_settings
from common.generator import Generator, build_generator
from common.seeding import seeded_globally, torch_generator
from scripts.moonflower.repository import default_run_config
from scripts.moonflower.research.benchmark import bare
from scripts.moonflower.research.benchmark.lines import Line, Target
from scripts.moonflower.research.benchmark.measure import Prepare, Work, compare
from scripts.moonflower.research.benchmark.sizes import Sizes
from server_app.strategies.fedgen.teacher import Head, build_teacher, train_generator

LATENT, CLASSES, HIDDEN = 32, 10, 64
"""Of FedGen's MNIST model; HIDDEN is the width of the predictors with two layers."""

Teacher = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _linear() -> nn.Module:
    return nn.Linear(LATENT, CLASSES)


def _two_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


KINDS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "linear predictors": (_linear, "averaged-logits"),
    "linear predictors, published code's teacher": (_linear, "label-weighted"),
    "two-layer predictors": (_two_layer, "averaged-logits"),
}
"""Predictors, and how the clients' heads teach (``fedgen.teacher``)."""


@dataclass(frozen=True)
class Federation:
    """What the server has when it trains the generator.

    Attributes
    ----------
    settings : FedGenSettings
    heads : Sequence[nn.Module]
        The clients' predictors, without gradients.
    states : Sequence[Head]
        Their weights, as they come with the replies.
    generator : Generator
        Before training.
    prior : Tensor
        Float ``[classes]``.
    counts : Tensor
        ``[clients, classes]``: examples of each label.
    """

    settings: FedGenSettings
    heads: Sequence[nn.Module]
    states: Sequence[Head]
    generator: Generator
    prior: Tensor
    counts: Tensor

    def random(self) -> torch.Generator:
        """Return what labels and noise are drawn from, the same each time."""
        return torch_generator(0, "benchmark", device=self.prior.device)

    def adam(self, generator: Generator) -> torch.optim.Optimizer:
        """Return a fresh optimiser as FedGen's wrapper makes it."""
        return torch.optim.Adam(
            generator.parameters(),
            lr=self.settings.generator_learning_rate,
            weight_decay=self.settings.generator_weight_decay,
        )


def make_federation(kind: str, clients: int, steps: int, device: torch.device) -> Federation:
    """Return a federation of one of ``KINDS``."""
    predictor, teacher = KINDS[kind]
    changes = {"fedgen.server-steps": steps, "fedgen.teacher": teacher}
    settings = parse_settings(default_run_config() | changes).fedgen
    with seeded_globally(0, "benchmark"):
        heads = [predictor().to(device).requires_grad_(False) for _ in range(clients)]
    generator = build_generator(settings, CLASSES, LATENT, 0).to(device)
    prior = torch.full((CLASSES,), 1 / CLASSES, device=device)
    states = [head.state_dict() for head in heads]
    # Unlike shares, so that a test sees whose share weighs which head.
    counts = 1 + torch.arange(clients * CLASSES, device=device).view(clients, CLASSES) % 7
    return Federation(settings, heads, states, generator, prior, counts)


def _teacher(federation: Federation) -> Teacher:
    this = federation
    return build_teacher(this.settings, this.heads[0], this.states, this.counts)


def _loop(federation: Federation) -> Callable[[Tensor, Tensor], Tensor]:
    heads = federation.heads
    if federation.settings.teacher == "averaged-logits":
        return lambda z, y: bare.averaged_logits(heads, z, y)
    shares = (federation.counts / federation.counts.sum(dim=0)).T
    return lambda z, y: bare.label_weighted(heads, z, y, shares)


def app_training(federation: Federation, generator: Generator) -> float:
    """Train ``generator`` in place as the server does; return the mean loss."""
    losses = train_generator(
        generator,
        federation.adam(generator),
        _teacher(federation),
        federation.heads[0],
        federation.prior,
        federation.settings,
        federation.random(),
    )
    return losses["generator-loss"]


def bare_training(federation: Federation, generator: Generator) -> float:
    """Train ``generator`` in place head by head; return the mean loss."""
    settings = federation.settings
    return bare.generator_training(
        generator,
        federation.adam(generator),
        _loop(federation),
        federation.prior,
        federation.random(),
        steps=settings.server_steps,
        batch_size=settings.server_batch_size,
        diversity_weight=settings.diversity_weight,
    )


def teacher_gradients(
    federation: Federation, loss: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the teacher's part of a step, ``server-steps`` times: its loss and gradient by z."""
    settings, device = federation.settings, federation.prior.device
    random = federation.random()
    y = torch.arange(settings.server_batch_size, device=device) % CLASSES
    z = torch.randn(len(y), LATENT, generator=random, device=device, requires_grad=True)
    for _ in range(settings.server_steps):
        value = loss(z, y)
        (gradient,) = torch.autograd.grad(value, z)
    return value.detach(), gradient


def app_teacher(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return :func:`teacher_gradients` with the app's teacher, which is built here."""
    teacher = _teacher(federation)
    return teacher_gradients(federation, lambda z, y: teacher(z, y)[0])


def bare_teacher(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return :func:`teacher_gradients`, head by head."""
    return teacher_gradients(federation, _loop(federation))


def generator_training(sizes: Sizes) -> list[Line]:
    """Part c: seconds of one round's generator training, and of its teacher alone."""
    return [line for kind in KINDS for line in _of_kind(kind, sizes)]


def _of_kind(kind: str, sizes: Sizes) -> list[Line]:
    contenders: dict[str, Prepare] = {}
    for clients in sizes.clients:
        federation = make_federation(kind, clients, sizes.server_steps, sizes.device)
        contenders |= {
            f"app, {clients}": _trains(federation, app_training),
            f"loop, {clients}": _trains(federation, bare_training),
            f"app's teacher, {clients}": _teaches(federation, app_teacher),
            f"loop's teacher, {clients}": _teaches(federation, bare_teacher),
        }
    found = compare(contenders, sizes.repetitions)
    fewest, most = min(sizes.clients), max(sizes.clients)
    # The generator's own step is the same in both ways, so the teacher is timed alone as well.
    linear = kind == "linear predictors"
    lines = []
    for clients in sizes.clients:
        target = Target("at least", 3.0) if linear and clients == fewest else None
        for what, apps, loops in (
            ("generator", "app", "loop"),
            ("its teacher alone", "app's teacher", "loop's teacher"),
        ):
            names = {"app": f"{apps}, {clients}", "loop": f"{loops}, {clients}"}
            milliseconds = {
                f"{way} ms/step": 1000 * found.median(name) / sizes.server_steps
                for way, name in names.items()
            }
            text = f"{what}, {kind}, {clients} clients: app / loop over clients"
            speed = found.speed(names["app"], names["loop"])
            lines.append(Line("c", text, speed, target, milliseconds))
    if fewest == most:
        return lines
    growth = found.speed(f"app, {fewest}", f"app, {most}")
    text = f"generator, {kind}: cost of {most} clients / cost of {fewest}"
    return [*lines, Line("c", text, growth, Target("at most", 1.2) if linear else None)]


def _trains(federation: Federation, work: Callable[[Federation, Generator], object]) -> Prepare:
    def prepare() -> Work:
        generator = copy.deepcopy(federation.generator)
        return lambda: work(federation, generator)

    return prepare


def _teaches(federation: Federation, work: Callable[[Federation], object]) -> Prepare:
    return lambda: lambda: work(federation)

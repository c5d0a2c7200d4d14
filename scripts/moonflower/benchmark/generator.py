"""Part c: training FedGen's generator on many heads, next to a loop over the clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common.config import FedGenSettings, parse_settings
from common.generator import Generator, build_generator
from common.seeding import seeded_initialisation, torch_generator
from scripts.moonflower.benchmark import bare
from scripts.moonflower.benchmark.lines import Line, Target
from scripts.moonflower.benchmark.measure import Prepare, Work, compare
from scripts.moonflower.benchmark.sizes import Sizes
from scripts.moonflower.repository import default_run_config
from server_app.distillation import build_teacher, train_generator

LATENT, CLASSES, HIDDEN = 32, 10, 64
"""Of FedGen's MNIST model; HIDDEN is the width of the predictors with two layers."""

PREDICTORS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(LATENT, CLASSES),
    "two-layer": lambda: nn.Sequential(
        nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    ),
}


@dataclass(frozen=True)
class Federation:
    """What the server has when it trains the generator.

    Attributes
    ----------
    settings : FedGenSettings
    heads : Sequence[nn.Module]
        The clients' predictors, without gradients.
    generator : Generator
        Before training.
    prior : Tensor
        Float ``[classes]``.
    """

    settings: FedGenSettings
    heads: Sequence[nn.Module]
    generator: Generator
    prior: Tensor

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
    """Return a federation whose heads are of one ``kind`` of ``PREDICTORS``."""
    settings = parse_settings(default_run_config() | {"fedgen.server-steps": steps}).fedgen
    with seeded_initialisation(0, "benchmark"):
        heads = [PREDICTORS[kind]().to(device).requires_grad_(False) for _ in range(clients)]
    generator = build_generator(settings, CLASSES, LATENT, 0).to(device)
    prior = torch.full((CLASSES,), 1 / CLASSES, device=device)
    return Federation(settings, heads, generator, prior)


def app_training(federation: Federation, generator: Generator) -> float:
    """Train ``generator`` in place as the server does; return the mean loss."""
    settings, heads = federation.settings, federation.heads
    counts = torch.ones(len(heads), CLASSES, device=federation.prior.device)
    teacher = build_teacher(settings, heads[0], [head.state_dict() for head in heads], counts)
    losses = train_generator(
        generator,
        federation.adam(generator),
        teacher,
        heads[0],
        federation.prior,
        settings,
        federation.random(),
    )
    return losses["generator-loss"]


def bare_training(federation: Federation, generator: Generator) -> float:
    """Train ``generator`` in place head by head; return the mean loss."""
    settings = federation.settings
    return bare.generator_training(
        generator,
        federation.adam(generator),
        federation.heads,
        federation.prior,
        federation.random(),
        steps=settings.server_steps,
        batch_size=settings.server_batch_size,
        diversity_weight=settings.diversity_weight,
    )


def generator_training(sizes: Sizes) -> list[Line]:
    """Part c: seconds of one round's generator training."""
    return [line for kind in PREDICTORS for line in _of_kind(kind, sizes)]


def _of_kind(kind: str, sizes: Sizes) -> list[Line]:
    contenders: dict[str, Prepare] = {}
    for clients in sizes.clients:
        federation = make_federation(kind, clients, sizes.server_steps, sizes.device)
        contenders[f"app, {clients} clients"] = _app(federation)
        contenders[f"loop, {clients} clients"] = _loop(federation)
    found = compare(contenders, sizes.device, sizes.repetitions)
    milliseconds = {name: 1000 * found.median(name) / sizes.server_steps for name in found.seconds}
    fewest, most = min(sizes.clients), max(sizes.clients)
    lines = [
        Line(
            "c",
            f"generator, {kind} predictors, {clients} clients: app / loop over clients",
            found.speed(f"app, {clients} clients", f"loop, {clients} clients"),
            Target("at least", 3.0) if kind == "linear" and clients == fewest else None,
            {
                f"{way} ms/step": milliseconds[f"{way}, {clients} clients"]
                for way in ("app", "loop")
            },
        )
        for clients in sizes.clients
    ]
    growth = found.speed(f"app, {fewest} clients", f"app, {most} clients")
    target = Target("at most", 1.2) if kind == "linear" else None
    what = f"generator, {kind} predictors: cost of {most} clients / cost of {fewest}"
    return [*lines, Line("c", what, growth, target)]


def _app(federation: Federation) -> Prepare:
    def prepare() -> Work:
        generator = copy.deepcopy(federation.generator)
        return lambda: app_training(federation, generator)

    return prepare


def _loop(federation: Federation) -> Prepare:
    def prepare() -> Work:
        generator = copy.deepcopy(federation.generator)
        return lambda: bare_training(federation, generator)

    return prepare

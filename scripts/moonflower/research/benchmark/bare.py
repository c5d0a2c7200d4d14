"""Bare PyTorch loops: the limit that the app is held against.

Each is what one writes for this one algorithm, this one data set and this one machine, with nothing
around it: no Flower, no terms, no settings. They use the app's networks (model and generator), its
augmentation and the generator's diversity loss, since those are the work itself, and draw the same
random numbers, so that both compute the same and a test can hold them to it. Everything else is
written out anew.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.data.augmentation import crop_flip
from common.generator import Generator, diversity_loss
from common.models import SplitModel


@dataclass(frozen=True)
class Plan:
    """The numbers of one round of local training.

    Attributes
    ----------
    steps : int
        Through as many permutations of the examples as it takes.
    batch_size : int
        The last, smaller batch of a permutation is dropped.
    learning_rate, momentum, weight_decay : float
        Of SGD.
    augmented : bool
        Whether images are cropped and flipped at random.
    """

    steps: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    augmented: bool = False


def _batches(x: Tensor, y: Tensor, plan: Plan, order: torch.Generator) -> Iterator[list[Tensor]]:
    """Yield the images, labels and indices of ``plan.steps`` batches."""
    seed = torch.randint(0, 2**63 - 1, (), generator=order)
    shifts = torch.Generator().manual_seed(int(seed))

    def endless() -> Iterator[list[Tensor]]:
        while True:
            permutation = torch.randperm(len(y), generator=order).to(y.device)
            for begin in range(0, len(y) - plan.batch_size + 1, plan.batch_size):
                index = permutation[begin : begin + plan.batch_size]
                images = x[index]
                yield [crop_flip(images, shifts) if plan.augmented else images, y[index], index]

    return islice(endless(), plan.steps)


def _sgd(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        model.parameters(),
        lr=plan.learning_rate,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
        fused=True,
    )


def moon(
    model: SplitModel,
    previous: SplitModel,
    x: Tensor,
    y: Tensor,
    plan: Plan,
    order: torch.Generator,
    *,
    mu: float,
    temperature: float,
    once: bool,
) -> float:
    """Train ``model`` in place by MOON's objective with one previous model; return the mean loss.

    With one negative, l_con is ``softplus((sim_previous - sim_global) / temperature)``.

    Parameters
    ----------
    model, previous : SplitModel
        ``model`` holds the global weights.
    x, y : Tensor
        All examples, on the model's device.
    plan : Plan
    order : torch.Generator
        On the CPU; the permutations come from it.
    mu, temperature : float
    once : bool
        Compute the frozen models' z once for every example instead of once for every batch.
    """
    frozen = [copy.deepcopy(each).eval().requires_grad_(False) for each in (model, previous)]
    optimizer = _sgd(model, plan)
    kept: list[Tensor] = []
    if once:
        with torch.no_grad():
            kept = [torch.cat([each.encoder(part) for part in x.split(512)]) for each in frozen]
    total = torch.zeros((), device=x.device)
    model.train()
    for images, labels, index in _batches(x, y, plan, order):
        z = model.encoder(images)
        if once:
            z_global, z_previous = kept[0][index], kept[1][index]
        else:
            with torch.no_grad():
                z_global, z_previous = (each.encoder(images) for each in frozen)
        nearer = F.cosine_similarity(z, z_previous) - F.cosine_similarity(z, z_global)
        contrast = F.softplus(nearer / temperature).mean()
        loss = F.cross_entropy(model.predictor(z), labels) + mu * contrast
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return float(total) / plan.steps


def fedgen(
    model: SplitModel,
    generator: Generator,
    x: Tensor,
    y: Tensor,
    plan: Plan,
    order: torch.Generator,
    random: torch.Generator,
    *,
    prior: Tensor,
    generated: int,
    alpha: float,
    beta: float,
) -> float:
    """Train ``model`` in place by FedGen's published local objective; return the mean loss.

    Parameters
    ----------
    model : SplitModel
    generator : Generator
        In eval mode, without gradients.
    x, y, plan, order
        As for :func:`moon`.
    random : torch.Generator
        On the device; labels and uniform noise come from it.
    prior : Tensor
        Float ``[classes]``.
    generated : int
        Size of the generated batch.
    alpha, beta : float
        Weights of the cross-entropy on G(y~p^) and of the KL to the output on G(y); with
        ``beta`` 0 the latter is left out.
    """
    optimizer = _sgd(model, plan)
    drawn = torch.ones(len(prior), dtype=torch.long, device=y.device)
    total = torch.zeros((), device=x.device)

    def represent(labels: Tensor) -> Tensor:
        noise = torch.rand(len(labels), generator.noise_dim, generator=random, device=y.device)
        with torch.no_grad():
            return generator(noise, labels)  # type: ignore[no-any-return]

    model.train()
    for images, labels, _ in _batches(x, y, plan, order):
        drawn.scatter_add_(0, labels, torch.ones_like(labels))
        logits = model(images)
        wanted = torch.multinomial(prior, generated, replacement=True, generator=random)
        loss = F.cross_entropy(logits, labels)
        loss = loss + alpha * F.cross_entropy(model.predictor(represent(wanted)), wanted)
        if beta:
            with torch.no_grad():
                target = F.log_softmax(model.predictor(represent(labels)), dim=1)
            found = F.log_softmax(logits, dim=1)
            loss = loss + beta * F.kl_div(found, target, reduction="batchmean", log_target=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return float(total) / plan.steps


def averaged_logits(heads: Sequence[nn.Module], z: Tensor, y: Tensor) -> Tensor:
    """Return Eq. 4, cross-entropy of the clients' averaged logits, head by head."""
    return F.cross_entropy(torch.stack([head(z) for head in heads]).mean(dim=0), y)


def label_weighted(heads: Sequence[nn.Module], z: Tensor, y: Tensor, shares: Tensor) -> Tensor:
    """Return the published code's teacher, head by head.

    Parameters
    ----------
    heads : sequence of nn.Module
    z, y : Tensor
    shares : Tensor
        Float ``[classes, clients]``: each client's share of the examples of a label.
    """
    losses = [
        (F.cross_entropy(head(z), y, reduction="none") * shares[y, client]).mean()
        for client, head in enumerate(heads)
    ]
    return torch.stack(losses).sum()


def generator_training(
    generator: Generator,
    optimizer: torch.optim.Optimizer,
    teacher: Callable[[Tensor, Tensor], Tensor],
    prior: Tensor,
    random: torch.Generator,
    *,
    steps: int,
    batch_size: int,
    diversity_weight: float,
) -> float:
    """Train ``generator`` in place; return the mean loss.

    Parameters
    ----------
    generator : Generator
    optimizer : torch.optim.Optimizer
        Over the generator's parameters.
    teacher : callable
        ``(z, y)`` to the loss of the clients' heads.
    prior : Tensor
        Float ``[classes]``.
    random : torch.Generator
        On the device; labels and normal noise come from it.
    steps, batch_size : int
    diversity_weight : float
    """
    total = torch.zeros((), device=prior.device)
    generator.train()
    for _ in range(steps):
        y = torch.multinomial(prior, batch_size, replacement=True, generator=random)
        noise = torch.randn(batch_size, generator.noise_dim, generator=random, device=prior.device)
        z = generator(noise, y)
        loss = teacher(z, y) + diversity_weight * diversity_loss(noise, z)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return float(total) / steps

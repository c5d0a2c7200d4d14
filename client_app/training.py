"""The local loop. It knows no algorithm and no Flower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from client_app.computation import Computation
from client_app.optimizer import Optimizer
from client_app.terms import Term
from common import records
from common.data import Batch
from common.models import SplitModel
from common.tasks import Task


def train(
    task: Task,
    model: SplitModel,
    batches: Iterable[Batch],
    terms: Sequence[Term],
    optimizer: Optimizer,
    computation: Computation | None = None,
) -> dict[str, float]:
    """Minimise the task's loss plus the terms' penalties over ``batches``.

    Parameters
    ----------
    task : Task
    model : SplitModel
        Trained in place.
    batches : Iterable[Batch]
        On the model's device.
    terms : Sequence[Term]
        Already begun.
    optimizer : Optimizer
        Over the model's parameters.
    computation : Computation, optional
        Precision and layout; without it, plain float32.

    Returns
    -------
    dict[str, float]
        Means over the steps: ``loss``, the task's own (``task.loss_name``), each term's penalty
        under its name and the terms' own metrics; and ``steps``, their number.
    """
    computation = computation or Computation()
    device = next(model.parameters()).device
    sums = torch.zeros(2 + len(terms), device=device)
    steps = 0
    model.train()
    for batch in batches:
        arranged = replace(batch, x=computation.arranged(batch.x))
        with _normalisation_for(model, len(batch.index)):
            with computation.precision():
                step = task.forward(model, arranged)
                penalties = [term.penalty(step) for term in terms]
                loss = torch.stack([step.loss, *penalties]).sum()
            optimizer.zero_grad()
            computation.backward(loss)
            computation.step(optimizer)
        # Kept on the device: reading a number here would wait for it in every step.
        sums += torch.stack([loss, step.loss, *penalties]).detach()
        steps += 1
    names = [records.LOSS, task.loss_name, *(term.name for term in terms)]
    return {**_means(names, sums, terms, max(steps, 1)), records.STEPS: float(steps)}


def _means(
    names: Sequence[str], sums: Tensor, terms: Sequence[Term], steps: int
) -> dict[str, float]:
    means = dict(zip(names, (sums / steps).tolist(), strict=True))
    for term in terms:
        means |= {name: float(total) / steps for name, total in term.metrics().items()}
    return means


@contextmanager
def _normalisation_for(model: nn.Module, batch_size: int) -> Iterator[None]:
    """Put BatchNorm into eval mode for a batch of one, whose variance does not exist."""
    if batch_size > 1:
        yield
        return
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
    ]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()

"""FedGen's generator-augmented terms (Zhu, Hong, Zhou, ICML 2021, arXiv:2105.10056)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from client_app.terms.base import Instruction
from common import records
from common.data.batches import batches_in_epoch
from common.generator import (
    Generator,
    build_generator,
    check_prior,
    draw_noise,
    generator_from_bytes,
    sample_labels,
)
from common.models import SplitModel
from common.schedules import scheduled
from common.seeding import torch_generator
from common.tasks import Step


def prediction_divergence(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Return ``KL(softmax(target_logits) || softmax(logits))``, the mean over the batch.

    The latent term of FedGen's published code: ``logits`` come from the real x,
    ``target_logits`` from G(y) and carry no gradient. Both float ``[batch, classes]``.
    """
    target = F.log_softmax(target_logits.detach(), dim=1)
    return F.kl_div(F.log_softmax(logits, dim=1), target, reduction="batchmean", log_target=True)


class Generative:
    """``alpha * CE(predictor(G(eps, y~p^)), y) + beta * KL(output on G(y), output on x)``.

    The first summand is Eq. 5, and only the predictor learns from it. The second is in the
    published code only (``fedgen.beta``); through the output on x, the encoder learns from it too.
    G is frozen and in eval mode. Before ``fedgen.start-round`` the server sends no generator and
    both are zero, as they are after ``fedgen.early-stop`` local epochs.
    """

    name = "fedgen"
    models_kept = 0

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Load the generator that came with the instruction."""
        settings, config = instruction.settings.fedgen, instruction.config
        seed, client = instruction.settings.seed, instruction.node.name
        device = instruction.node.device
        self._settings = settings
        self._alpha, self._beta = (
            scheduled(weight, settings.decay, instruction.server_round)
            for weight in (settings.alpha, settings.beta)
        )
        if settings.gen_ratio:
            self._alpha *= settings.batch_size / instruction.settings.train.batch_size
        self._steps, self._last = 0, _last_step(instruction)
        self._prior = check_prior(torch.tensor(config[records.FEDGEN_PRIOR], device=device))
        self._random = torch_generator(seed, "fedgen", client, instruction.server_round, device)
        self._generator: Generator | None = None
        if records.FEDGEN_GENERATOR in config:
            generator = build_generator(settings, model.outputs, model.latent_dim, seed)
            blob = cast(bytes, config[records.FEDGEN_GENERATOR])
            generator_from_bytes(generator, blob, instruction.settings.wire.dtype)
            self._generator = generator.to(device).eval().requires_grad_(requires_grad=False)
        zero = torch.zeros((), device=device)
        self._sums = {"generated-cross-entropy": zero.clone(), "generated-kl": zero.clone()}
        counts_all = settings.label_counts == "all"
        self._counts = instruction.data.label_counts.to(device, copy=True)
        if not counts_all:
            self._counts = torch.ones_like(self._counts)
        self._count_drawn = not counts_all

    def penalty(self, step: Step) -> Tensor:
        """Return the weighted sum of both terms for this step."""
        if self._count_drawn:
            # Not bincount, which waits for the device to learn the largest label.
            self._counts.scatter_add_(0, step.y, torch.ones_like(step.y))
        self._steps += 1
        if self._generator is None or self._steps > self._last:
            return step.output.new_zeros(())
        predictor = step.model.predictor
        y = sample_labels(self._prior, self._settings.batch_size, self._random)
        cross_entropy = F.cross_entropy(predictor(self._generate(y)), y)
        self._sums["generated-cross-entropy"] += cross_entropy.detach()
        loss = self._alpha * cross_entropy
        if self._beta > 0:
            with torch.no_grad():
                target_logits = predictor(self._generate(step.y))
            divergence = prediction_divergence(step.output, target_logits)
            self._sums["generated-kl"] += divergence.detach()
            loss = loss + self._beta * divergence
        return loss

    def metrics(self) -> Mapping[str, Tensor]:
        """Return both terms' sums, before their weights."""
        return self._sums

    def end(self, model: SplitModel) -> RecordDict:
        """Add this client's label counts, from which the server estimates p^(y)."""
        counts = ConfigRecord({"counts": [int(count) for count in self._counts.tolist()]})
        return RecordDict({records.LABEL_COUNTS: counts})

    @torch.no_grad()
    def _generate(self, y: Tensor) -> Tensor:
        generator = cast(Generator, self._generator)
        noise = draw_noise(self._settings.noise, len(y), self._settings.noise_dim, self._random)
        return cast(Tensor, generator(noise, y))


def _last_step(instruction: Instruction) -> float:
    """Return the last step of the round that the generator has a say in; infinity without end."""
    epochs, train = instruction.settings.fedgen.early_stop, instruction.settings.train
    if not epochs:
        return math.inf
    if train.local_steps:
        return epochs
    in_epoch = batches_in_epoch(
        len(instruction.data.train), train.batch_size, drop_last=train.drop_last
    )
    return epochs * in_epoch

"""Training FedGen's generator on the clients' predictor heads (Zhu et al., ICML 2021).

No example is seen: the heads that clients send are the teacher, and the generator learns a
``z`` that they agree belongs to a label.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.config import FedGenSettings
from common.generator import Generator, diversity_loss, draw_noise, sample_labels

Head = Mapping[str, Tensor]
"""The state dict of one client's predictor."""


def label_weighted_loss(logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Return the published code's teacher: each client's cross-entropy, weighted by label.

    ``sum_k mean_b( w[k, b] * CE(logits[k, b], y_b) )``.

    Parameters
    ----------
    logits : Tensor
        Float ``[clients, batch, classes]``.
    y : Tensor
        Int64 ``[batch]``.
    weights : Tensor
        Float ``[clients, batch]``: the client's share of the examples of label ``y_b``.
    """
    clients, batch, classes = logits.shape
    losses = F.cross_entropy(
        logits.reshape(clients * batch, classes), y.repeat(clients), reduction="none"
    )
    return (losses.view(clients, batch) * weights).mean(dim=1).sum()


def student_divergence(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Return ``KL(softmax(student) || softmax(teacher))``, the mean over the batch."""
    return F.kl_div(
        F.log_softmax(teacher_logits, dim=1),
        F.log_softmax(student_logits, dim=1),
        reduction="batchmean",
        log_target=True,
    )


def shares_by_label(counts: Tensor) -> Tensor:
    """Return each client's share of every label.

    Parameters
    ----------
    counts : Tensor
        ``[clients, classes]``, at least 0.

    Returns
    -------
    Tensor
        Float ``[classes, clients]``; rows sum to 1, or are 0 where nobody has the label.
    """
    counts = counts.to(torch.get_default_dtype()).T
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=torch.finfo(counts.dtype).tiny)


def _is_linear(predictor: nn.Module) -> bool:
    # A class made from nn.Linear may do anything with its weights.
    return type(predictor) is nn.Linear


def stacked_heads(predictor: nn.Module, heads: Sequence[Head]) -> Callable[[Tensor], Tensor]:
    """Return ``z -> logits [clients, batch, classes]`` of all heads in one batched product.

    Linear heads are one matrix product, with the bits of the general way and without its
    overhead, which for ten heads is most of the time.
    """
    if _is_linear(predictor):
        joined = {name: torch.cat([head[name] for head in heads]) for name in heads[0]}
        weight, bias = joined["weight"], joined.get("bias")
        by_client = (len(heads), -1)
        return lambda z: F.linear(z, weight, bias).unflatten(1, by_client).transpose(0, 1)
    stacked = {name: torch.stack([head[name] for head in heads]) for name in heads[0]}
    # Teachers do not train: as in the published code, dropout is off and statistics stay.
    predictor = copy.deepcopy(predictor).eval()

    def one(head: dict[str, Tensor], z: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(predictor, head, (z,))
        return logits

    return lambda z: torch.vmap(one, in_dims=(0, None))(stacked, z)


def averaged_logits(predictor: nn.Module, heads: Sequence[Head]) -> Callable[[Tensor], Tensor]:
    """Return ``z -> logits [batch, classes]``, the mean of all heads' logits.

    The mean of linear heads' logits is the logits of the mean head, so Eq. 4 costs the same for
    a thousand clients as for one.
    """
    if _is_linear(predictor):
        mean = {name: torch.stack([head[name] for head in heads]).mean(dim=0) for name in heads[0]}
        weight, bias = mean["weight"], mean.get("bias")
        return lambda z: F.linear(z, weight, bias)
    each = stacked_heads(predictor, heads)
    return lambda z: each(z).mean(dim=0)


def build_teacher(
    settings: FedGenSettings, predictor: nn.Module, heads: Sequence[Head], counts: Tensor
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return ``(z, y) -> (teacher loss, teacher logits [batch, classes])``.

    The loss is Eq. 4, cross-entropy of the clients' averaged logits, or
    :func:`label_weighted_loss`.

    Parameters
    ----------
    settings : FedGenSettings
    predictor : nn.Module
        Shape of the heads; its weights are not used.
    heads : sequence of Head
        One per client, at least one.
    counts : Tensor
        Label counts ``[clients, classes]`` in the order of ``heads``.
    """
    if settings.teacher == "averaged-logits":
        mean_logits = averaged_logits(predictor, heads)

        def averaged(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits = mean_logits(z)
            return F.cross_entropy(logits, y), logits

        return averaged

    all_heads, shares = stacked_heads(predictor, heads), shares_by_label(counts)

    def weighted(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits, weights = all_heads(z), shares[y].T
        mixed = (logits * weights.unsqueeze(-1)).sum(dim=0)
        return label_weighted_loss(logits, y, weights), mixed

    return weighted


def train_generator(
    generator: Generator,
    optimizer: torch.optim.Optimizer,
    teacher: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    student: nn.Module,
    prior: Tensor,
    settings: FedGenSettings,
    random: torch.Generator,
) -> dict[str, float]:
    """Take ``server-steps`` steps on the weighted sum of three losses.

    ``w teacher + eta diversity - beta_student student`` (``fedgen.teacher-weight`` and so on).

    Parameters
    ----------
    generator : Generator
        Trained in place.
    teacher : callable
        From :func:`build_teacher`.
    student : nn.Module
        The predictor that this round's clients received.
    prior : Tensor
        Float ``[classes]``: from where the labels are drawn.
    random : torch.Generator
        On the generator's device.

    Returns
    -------
    dict[str, float]
        Means over the steps, before their weights, under metric names.
    """
    generator.train()
    student = copy.deepcopy(student).eval().requires_grad_(requires_grad=False)
    sums = torch.zeros(4, device=prior.device)
    for _ in range(settings.server_steps):
        y = sample_labels(prior, settings.server_batch_size, random)
        noise = draw_noise(settings.noise, len(y), settings.noise_dim, random)
        z = generator(noise, y)
        teacher_loss, teacher_logits = teacher(z, y)
        diversity = diversity_loss(noise, z)
        loss = settings.teacher_weight * teacher_loss + settings.diversity_weight * diversity
        divergence = torch.zeros_like(loss)
        if settings.student_weight > 0:
            divergence = student_divergence(student(z), teacher_logits)
            loss = loss - settings.student_weight * divergence
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        sums += torch.stack([loss, teacher_loss, diversity, divergence]).detach()
    names = ("generator-loss", "generator-teacher", "generator-diversity", "generator-student")
    return dict(zip(names, (sums / settings.server_steps).tolist(), strict=True))

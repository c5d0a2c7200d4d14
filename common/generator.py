"""FedGen's conditional generator and what it is fed with (Zhu, Hong, Zhou, ICML 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common.config import FedGenSettings, WireDtype
from common.second_model import pack_model, unpack_model
from common.seeding import seeded_globally


class Generator(nn.Module):
    """G(eps, y) -> z: a representation that a model might have for label ``y``.

    One hidden layer with BatchNorm and ReLU and a linear output, as in the published code.

    Parameters
    ----------
    num_classes, latent_dim, noise_dim, hidden_dim : int
        From 1.
    label_input : {"one-hot", "embedding"}
        How the label enters: as a one-hot vector, or as a learned vector of ``noise_dim``.

    Raises
    ------
    ValueError
        ``label_input`` is neither.
    """

    def __init__(
        self,
        num_classes: int,
        latent_dim: int,
        noise_dim: int,
        hidden_dim: int,
        label_input: Literal["one-hot", "embedding"],
    ) -> None:
        super().__init__()
        if label_input not in ("one-hot", "embedding"):
            raise ValueError(
                f"label_input = {label_input!r}: allowed are 'one-hot' and 'embedding'"
            )
        self.num_classes = num_classes
        self.latent_dim = latent_dim
        self.noise_dim = noise_dim
        embeds = label_input == "embedding"
        self.embedding = nn.Embedding(num_classes, noise_dim) if embeds else None
        self.hidden = nn.Linear(noise_dim + (noise_dim if embeds else num_classes), hidden_dim)
        self.norm = nn.BatchNorm1d(hidden_dim)
        self.output = nn.Linear(hidden_dim, latent_dim)

    def forward(self, noise: Tensor, y: Tensor) -> Tensor:
        """Return ``z``.

        Parameters
        ----------
        noise : Tensor
            Float ``[batch, noise_dim]``. In training mode the batch has at least 2 rows.
        y : Tensor
            Int64 ``[batch]``, values in [0, num_classes).

        Returns
        -------
        Tensor
            Float ``[batch, latent_dim]``.
        """
        if self.embedding is None:
            label = F.one_hot(y, self.num_classes).to(noise.dtype)
        else:
            label = self.embedding(y)
        hidden = torch.relu(self.norm(self.hidden(torch.cat((noise, label), dim=1))))
        z: Tensor = self.output(hidden)
        return z


def build_generator(
    settings: FedGenSettings, num_classes: int, latent_dim: int, seed: int
) -> Generator:
    """Return a new generator on the CPU; the same seed gives the same weights."""
    with seeded_globally(seed, "generator"):
        return Generator(
            num_classes, latent_dim, settings.noise_dim, settings.hidden_dim, settings.label_input
        )


def draw_noise(
    kind: Literal["normal", "uniform"], count: int, dim: int, random: torch.Generator
) -> Tensor:
    """Return noise, float32 ``[count, dim]``, on the device of ``random``.

    Parameters
    ----------
    kind : {"normal", "uniform"}
        N(0, I) (the paper) or uniform on [0, 1) (the published code).
    count, dim : int
    random : torch.Generator
        Where it lies, the numbers are drawn: a step waits for no other device.

    Raises
    ------
    ValueError
        ``kind`` is neither.
    """
    draw = {"normal": torch.randn, "uniform": torch.rand}.get(kind)
    if draw is None:
        raise ValueError(f"noise = {kind!r}: allowed are 'normal' and 'uniform'")
    return draw(count, dim, generator=random, device=random.device)


def check_prior(prior: Tensor) -> Tensor:
    """Return ``prior`` if labels can be drawn from it.

    Parameters
    ----------
    prior : Tensor
        Float ``[num_classes]``; need not sum to 1.

    Raises
    ------
    ValueError
        A weight is negative or not finite, all are zero, or it has another number of dimensions.
    """
    usable = prior.ndim == 1 and bool(torch.isfinite(prior).all() and (prior >= 0).all())
    if not usable or not prior.sum() > 0:
        raise ValueError(
            f"the label prior {prior.tolist()} is no distribution: one finite weight per label is "
            "needed, none negative and not all zero. Check the clients' label counts"
        )
    return prior


def sample_labels(prior: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Draw labels y ~ p^(y), independently: int64 ``[count]`` on the device of ``prior``.

    Parameters
    ----------
    prior : Tensor
        Float ``[num_classes]`` that has passed :func:`check_prior`: this runs in every step, and
        looking at the numbers would wait for the device.
    count : int
    random : torch.Generator
        On the device of ``prior``.
    """
    return torch.multinomial(prior, count, replacement=True, generator=random)


def diversity_loss(noise: Tensor, z: Tensor) -> Tensor:
    """Return the loss that keeps the generator from collapsing to one output per label.

    ``exp(-mean_ij(d(eps_i, eps_j) * d(z_i, z_j)))`` over all pairs, i = j included, where the
    first d is the mean squared and the second the mean absolute difference of the components
    (published code, ``DiversityLoss``).

    Parameters
    ----------
    noise : Tensor
        Float ``[batch, noise_dim]``.
    z : Tensor
        Float ``[batch, latent_dim]``, what the generator made of ``noise``.

    Returns
    -------
    Tensor
        Scalar in (0, 1]; 1 when all ``z`` agree.
    """
    noise_distance = (noise.unsqueeze(1) - noise.unsqueeze(0)).square().mean(dim=2)
    z_distance = (z.unsqueeze(1) - z.unsqueeze(0)).abs().mean(dim=2)
    return torch.exp(-(noise_distance * z_distance).mean())


def generator_to_bytes(generator: Generator, dtype: WireDtype = "float32") -> bytes:
    """Return weights and buffers as bytes (:func:`common.second_model.pack_model`).

    float16 is precise enough: for FedGen's MNIST model they are two fifths of a train instruction,
    nothing is averaged or added up from them, and what a client draws from them, z, is noise
    within a label anyway.

    Raises
    ------
    WireError
        A parameter is too large for float16.
    """
    return pack_model(generator.state_dict(), _parameter_names(generator), dtype)


def generator_from_bytes(
    generator: Generator, blob: bytes, dtype: WireDtype = "float32"
) -> Generator:
    """Load :func:`generator_to_bytes` into ``generator`` and return it.

    Raises
    ------
    ValueError
        ``blob`` is no safetensors, or its names, shapes or dtypes differ from ``generator``'s,
        which then is unchanged.
    """
    own = generator.state_dict()
    received = unpack_model(blob, own, _parameter_names(generator), dtype, "generator")
    generator.load_state_dict(received)
    return generator


def _parameter_names(generator: Generator) -> set[str]:
    return {name for name, _ in generator.named_parameters()}

"""MOON's model-contrastive term (Li, He, Song, CVPR 2021, arXiv:2103.16257)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from flwr.app import RecordDict
from torch import Tensor

from client_app.state import LOCAL_MODEL
from client_app.terms.base import Instruction
from common.models import SplitModel
from common.models.split import frozen_copy
from common.schedules import moon_mu, moon_temperature
from common.tasks import Step

_FROZEN_BATCH = 512


def similarities(z: Tensor, z_frozen: Tensor) -> Tensor:
    """Return the cosine similarities of ``z`` to each frozen model's representation.

    Parameters
    ----------
    z : Tensor
        Float ``[batch, latent_dim]``.
    z_frozen : Tensor
        Float ``[models, batch, latent_dim]``.

    Returns
    -------
    Tensor
        Float ``[batch, models]``, each in [-1, 1].
    """
    return F.cosine_similarity(z.unsqueeze(0), z_frozen, dim=-1).T


def model_contrastive_loss(sim: Tensor, temperature: float) -> Tensor:
    """Return l_con (Eq. 3), the mean over the batch.

    Written as cross-entropy with target 0, which is ``-log(exp(s_0/tau) / sum_j exp(s_j/tau))``
    in a form that can't overflow.

    Parameters
    ----------
    sim : Tensor
        Float ``[batch, 1 + K]``: similarity to the global model (the positive), then to the K
        previous local models (the negatives).
    temperature : float
        tau, above 0.
    """
    target = torch.zeros(len(sim), dtype=torch.long, device=sim.device)
    return F.cross_entropy(sim / temperature, target)


class Contrastive:
    """``mu * l_con`` with this round's global model and K of the client's previous models.

    In the first round of a client there is no negative and the term is zero. Where inputs
    are the same in every epoch, the frozen models see each example once per round instead of
    once per epoch; with augmentation they see each batch.
    """

    name = "moon"

    def __init__(self, buffer_size: int) -> None:
        self.models_kept = buffer_size

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Freeze the global model and load the previous ones of rounds before this one."""
        settings, data = instruction.settings.moon, instruction.data
        self._mu = moon_mu(settings, instruction.server_round)
        self._temperature = moon_temperature(settings, instruction.server_round)
        now = model.state_dict()
        previous = instruction.kept(LOCAL_MODEL, settings.buffer_size, like=now)
        self._frozen = [frozen_copy(model, state) for state in (now, *previous)]
        self._cached: Tensor | None = None
        if instruction.settings.data.augmentation == "none":
            # In batches of one size whether the set is resident or not: how much memory is free
            # must not change a bit.
            parts = data.train.batches_in_order(_FROZEN_BATCH)
            self._cached = torch.cat([self._represent(x) for x, _ in parts], dim=1)
        zero = torch.zeros((), device=instruction.node.device)
        self._sums = {"sim-global": zero.clone(), "sim-previous": zero.clone()}

    def penalty(self, step: Step) -> Tensor:
        """Return ``mu * l_con`` of the batch, zero without a previous model."""
        frozen = self._represent(step.x) if self._cached is None else self._cached[:, step.index]
        sim = similarities(step.z, frozen)
        self._sums["sim-global"] += sim[:, 0].detach().mean()
        if len(self._frozen) == 1:
            return sim.new_zeros(())
        self._sums["sim-previous"] += sim[:, 1:].detach().mean()
        return self._mu * model_contrastive_loss(sim, self._temperature)

    def metrics(self) -> Mapping[str, Tensor]:
        """Return the summed mean similarities; ``sim-previous`` is 0 without a previous model."""
        return self._sums

    def end(self, model: SplitModel) -> RecordDict:
        """Add nothing: the app keeps the local model on disk (``models_kept``)."""
        return RecordDict()

    @torch.no_grad()
    def _represent(self, x: Tensor) -> Tensor:
        """Return ``z`` of every frozen model, float ``[models, batch, latent_dim]``.

        Zero where a number is not finite, as those of a previous model that has all but diverged:
        its NaN would spoil this round's training, and so on for ever.
        """
        z = torch.stack([frozen.encoder(x) for frozen in self._frozen]).float()
        return z.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

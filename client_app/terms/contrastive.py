"""MOON's model-contrastive term (Li, He, Song, CVPR 2021, arXiv:2103.16257)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from flwr.app import RecordDict
from torch import Tensor

from client_app.state import LOCAL_MODEL
from client_app.terms.base import Instruction, Term
from client_app.terms.frozen import FrozenPass
from common.config import MoonSettings
from common.models import SplitModel
from common.models.split import frozen_copy
from common.schedules import moon_mu, moon_temperature
from common.tasks import Step

_COUNT = ":models"
"""Beside an average on disk: how many models are in it. A colon is in no name of PyTorch's."""


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


def moving_average(
    average: Mapping[str, Tensor], newest: Mapping[str, Tensor], decay: float, count: int
) -> dict[str, Tensor]:
    """Return the exponential moving average of a client's local models with one more in it.

    ``average + (1 - decay) / (1 - decay^count) * (newest - average)``: each model weighs ``decay``
    times the next one, and all weights add up to 1 from the first on, as with Adam's corrected
    moments (Kingma and Ba, 2015). Without the correction, and a decay of 0.999, the first model
    would be nearly all of it for hundreds of rounds. Integers are the newest's.

    Parameters
    ----------
    average, newest : Mapping[str, Tensor]
        The same names and shapes.
    decay : float
        In [0, 1).
    count : int
        How many models are in the result, at least 1; of one, it is that one.
    """
    weight = (1 - decay) / (1 - decay**count)
    return {
        name: torch.lerp(average[name], value, weight) if value.is_floating_point() else value
        for name, value in newest.items()
    }


class Contrastive(Term):
    """``mu * l_con`` with this round's global model and the client's previous models.

    The negatives are the last K local models, or one moving average of all (``moon.previous``).

    In the first round of a client there is no negative and the term is zero.
    """

    name = "moon"

    def __init__(self, settings: MoonSettings) -> None:
        self._settings = settings
        self.models_kept = settings.buffer_size if settings.previous == "models" else 0

    def begin(self, model: SplitModel, instruction: Instruction) -> None:
        """Freeze the global model and load the previous ones of rounds before this one."""
        settings = self._settings
        self._instruction = instruction
        self._mu = moon_mu(settings, instruction.server_round)
        self._temperature = moon_temperature(settings, instruction.server_round)
        now = model.state_dict()
        previous = self._previous(now)
        self._frozen = [frozen_copy(model, state) for state in (now, *previous)]
        self._z_frozen = FrozenPass(self._represent, instruction, dim=1)
        zero = torch.zeros((), device=instruction.node.device)
        self._sums = {"sim-global": zero.clone(), "sim-previous": zero.clone()}

    def penalty(self, step: Step) -> Tensor:
        """Return ``mu * l_con`` of the batch, zero without a previous model."""
        sim = similarities(step.z, self._z_frozen.of(step))
        self._sums["sim-global"] += sim[:, 0].detach().mean()
        if len(self._frozen) == 1:
            return sim.new_zeros(())
        self._sums["sim-previous"] += sim[:, 1:].detach().mean()
        return self._mu * model_contrastive_loss(sim, self._temperature)

    def metrics(self) -> Mapping[str, Tensor]:
        """Return the summed mean similarities; ``sim-previous`` is 0 without a previous model."""
        return self._sums

    def end(self, model: SplitModel) -> RecordDict:
        """Keep the moving average, if it is what serves; local models are the app's to keep."""
        if self._settings.previous == "ema":
            newest, count = model.state_dict(), self._averaged + 1
            average = self._average or newest
            kept = moving_average(average, newest, self._settings.ema_decay, count)
            self._instruction.keep(self.name, {**kept, _COUNT: torch.tensor(count)})
        return RecordDict()

    def _previous(self, now: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return the negatives of rounds before this one, with the names and shapes of ``now``."""
        if self._settings.previous == "models":
            return self._instruction.kept(LOCAL_MODEL, self._settings.buffer_size, like=now)
        self._average: dict[str, Tensor] = {}
        self._averaged = 0
        for kept in self._instruction.kept(self.name, like={**now, _COUNT: torch.tensor(0)}):
            self._averaged = int(kept.pop(_COUNT))
            self._average = {name: kept[name].to(tensor) for name, tensor in now.items()}
        return [self._average] if self._average else []

    def _represent(self, x: Tensor) -> Tensor:
        """Return ``z`` of every frozen model, float ``[models, batch, latent_dim]``.

        Zero where a number is not finite, as those of a previous model that has all but diverged:
        its NaN would spoil this round's training, and so on for ever.
        """
        z = torch.stack([frozen.encoder(x) for frozen in self._frozen]).float()
        return z.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

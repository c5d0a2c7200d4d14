"""How the local loop computes: precision, memory layout. All of it is off by default.

Weights stay float32 whatever the settings say, on the wire and on disk as well.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from client_app.optimizer import Optimizer
from common.config import SettingsError, TrainSettings
from common.models import SplitModel

_LOWER = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def check_computation(settings: TrainSettings, device: torch.device) -> None:
    """Refuse a precision that ``device`` is not made for.

    Raises
    ------
    SettingsError
        float16 without a GPU.
    """
    if settings.precision == "float16" and device.type != "cuda":
        raise SettingsError(
            f"train.precision = 'float16' needs a GPU, this client trains on {device}: set "
            "train.precision to 'bfloat16' or 'float32', or train on a GPU"
        )


class Computation:
    """One round's way to compute; without arguments, plain float32.

    Parameters
    ----------
    device : torch.device
        Of model and batches.
    precision : {"float32", "bfloat16", "float16"}
    channels_last : bool
    """

    def __init__(
        self,
        device: torch.device | None = None,
        *,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> None:
        self._device = device or torch.device("cpu")
        self._lower = _LOWER.get(precision)
        self._channels_last = channels_last
        # Gradients below 6e-8 are zero in float16, so the loss is scaled up before them.
        scaled = precision == "float16"
        self._scaler = torch.amp.GradScaler(self._device.type) if scaled else None

    @classmethod
    def of(cls, settings: TrainSettings, device: torch.device) -> Computation:
        """Return what ``[train]`` asks for."""
        return cls(
            device,
            precision=settings.precision,
            channels_last=settings.channels_last,
        )

    def arrange(self, model: SplitModel) -> SplitModel:
        """Put the weights of convolutions into the chosen layout, in place, and return it."""
        if self._channels_last:
            model.to(memory_format=torch.channels_last)
        return model

    def arranged(self, x: Tensor) -> Tensor:
        """Return the images in the same layout."""
        if self._channels_last and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def precision(self) -> AbstractContextManager[object]:
        """Return the context of all forward computations."""
        if self._lower is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._lower)

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients, scaled in float16."""
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def step(self, optimizer: Optimizer) -> None:
        """Let the optimiser step; in float16 not where a gradient has overflowed."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)  # type: ignore[arg-type]
            self._scaler.update()

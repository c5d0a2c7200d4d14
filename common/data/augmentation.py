"""Training-time augmentation, batched and on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from common.data.errors import DataError

PADDING = 4


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return every image shifted by up to 4 pixels, edges reflected, and half of them mirrored.

    The same as reflection padding by 4, a random crop of the old size and a horizontal flip with
    probability 1/2, as for CIFAR in MOON's code.

    Parameters
    ----------
    x : Tensor
        Float ``[batch, channels, height, width]``, height and width at least 5.
    generator : torch.Generator
        On the CPU, so that every device sees the same shifts.

    Raises
    ------
    DataError
        The images are too small to reflect 4 pixels.
    """
    batch, _, height, width = x.shape
    check_croppable(height, width)
    shifts = torch.randint(0, 2 * PADDING + 1, (2, batch), generator=generator)
    mirrored = torch.randint(0, 2, (batch,), generator=generator, dtype=torch.bool)
    rows = _reflected(shifts[0], height)
    columns = _reflected(shifts[1], width)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    # Indexing rows and columns at once needs no padded copy of the batch. A plain copy to the
    # device would wait until it has done all that was asked before.
    picked: Tensor = x[
        torch.arange(batch, device=x.device)[:, None, None],
        :,
        rows.to(x.device, non_blocking=True)[:, :, None],
        columns.to(x.device, non_blocking=True)[:, None, :],
    ]
    return picked.permute(0, 3, 1, 2).contiguous()


def check_croppable(height: int, width: int) -> None:
    """Raise :class:`DataError` for images that are too small for :func:`crop_flip`."""
    if min(height, width) <= PADDING:
        raise DataError(
            f"data.augmentation='crop-flip' reflects {PADDING} pixels and needs images of at least "
            f"{PADDING + 1}x{PADDING + 1}, these are {height}x{width}: use data.augmentation='none'"
        )


def _reflected(shift: Tensor, size: int) -> Tensor:
    """Return ``[batch, size]`` source positions of a crop that begins at ``shift - PADDING``."""
    position = shift[:, None] + torch.arange(size) - PADDING
    last = size - 1
    return last - (last - position.abs()).abs()

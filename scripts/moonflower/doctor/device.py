"""The device that trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from common.data.memory import free_memory
from common.node import DEVICE_VARIABLE, choose_device
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

LITTLE = 2e9
"""Free bytes of memory below which a warning is given."""

NVIDIA = Path("/dev/nvidiactl")
"""There where a driver of NVIDIA's is loaded."""


def check_device(driver: Path = NVIDIA) -> Iterator[Finding]:
    """Compute something on the device that ``MOONFLOWER_DEVICE`` names, and look at its memory.

    Raises
    ------
    SettingsError
        There is no such device.
    """
    device = choose_device()
    free = free_memory(device)
    if device.type == "cpu":
        found = f"CPU, {free / 1e9:.1f} GB of memory free"
        if driver.exists() and not torch.cuda.is_available():
            remedy = f"install a CUDA build of torch that fits the driver, or {DEVICE_VARIABLE}=cpu"
            yield warning("device", f"{found}; there is a GPU, but torch sees none", remedy)
            return
    else:
        properties = torch.cuda.get_device_properties(device)
        found = (
            f"{device}: {properties.name}, {free / 1e9:.1f} of "
            f"{properties.total_memory / 1e9:.1f} GB free"
        )
        try:
            torch.ones(8, device=device).sum().item()
        except RuntimeError as error:
            remedy = "install a build of torch for this GPU and driver"
            yield failed("device", f"{found}, but it computes nothing: {error}", remedy)
            return
    if free < LITTLE:
        yield warning("device", found, "end what else uses it, or choose another")
    else:
        yield ok("device", found)

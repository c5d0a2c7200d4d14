"""How much memory the examples may take."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import torch

from common.data.errors import DataError

LIMIT_VARIABLE = "MOONFLOWER_RESIDENT_MB"
"""Environment variable: most megabytes (10**6 bytes) that one set may take on the device."""

_CGROUP = Path("/sys/fs/cgroup")


def fits(size: int, device: torch.device) -> bool:
    """Return whether ``size`` bytes of examples may stay on ``device``.

    They may take half of what is free there, and no more than ``MOONFLOWER_RESIDENT_MB`` where
    that is set.
    """
    return size <= min(_limit(), free_memory(device) / 2)


def check_limit() -> None:
    """Refuse a limit that :func:`fits` could not use.

    Raises
    ------
    DataError
        ``MOONFLOWER_RESIDENT_MB`` is not a number.
    """
    _limit()


def free_memory(device: torch.device) -> float:
    """Return the free bytes of a CUDA device, or what this process may still take of the RAM."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, _free_in_cgroup(_CGROUP))


def _limit() -> float:
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return float("inf")
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = float("nan")
    if not megabytes >= 0:
        raise DataError(
            f"{LIMIT_VARIABLE}={text!r} is not a number from 0: give megabytes, or unset it"
        )
    return megabytes * 1e6


def _free_in_cgroup(cgroup: Path) -> float:
    """Return what a container's own limit (cgroup v2) leaves; infinite where there is none.

    The kernel drops file pages that are not in use before it refuses memory, so they count as free.
    """
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        statistics = (cgroup / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return float("inf")
    if limit == "max":
        return float("inf")
    droppable = int(statistics[statistics.index("inactive_file") + 1])
    return max(0, int(limit) - used + droppable)

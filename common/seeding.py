"""Every random number comes from a generator made of (seed, purpose, client, round).

So a resumed run, a simulation and a deployment with the same seed draw the same numbers,
whatever ran before in the same process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(seed: int, purpose: str, client: str = "", server_round: int = 0) -> int:
    """Return a seed in [0, 2**63) that differs for every combination of the arguments."""
    text = f"{seed}\x1f{purpose}\x1f{client}\x1f{server_round}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(
    seed: int,
    purpose: str,
    client: str = "",
    server_round: int = 0,
    device: torch.device | str = "cpu",
) -> torch.Generator:
    """Return a fresh torch generator on ``device``."""
    generator = torch.Generator(device=device)
    generator.manual_seed(derive_seed(seed, purpose, client, server_round))
    return generator


def numpy_generator(
    seed: int, purpose: str, client: str = "", server_round: int = 0
) -> np.random.Generator:
    """Return a fresh NumPy generator."""
    return np.random.default_rng(derive_seed(seed, purpose, client, server_round))


@contextmanager
def seeded_globally(
    seed: int,
    purpose: str,
    client: str = "",
    server_round: int = 0,
    device: torch.device | None = None,
) -> Iterator[None]:
    """Seed torch's global generator of the CPU, and of ``device``, inside the block only.

    For what takes no other generator: layers when they initialise their weights, and dropout. The
    states before the block are put back after it. Those of other CUDA devices are left alone,
    which ``torch.manual_seed`` would seed as well.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        derived = derive_seed(seed, purpose, client, server_round)
        torch.default_generator.manual_seed(derived)
        for each in devices:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(derived)
        yield

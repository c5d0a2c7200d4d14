"""How much the benchmark does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Sizes:
    """Sizes of all parts; the defaults are those of the command.

    Attributes
    ----------
    device : torch.device
    threads : int
        CPU threads of a client, and of everything that is timed in this process.
    repetitions : int
        Timed turns of every contender.
    examples : int
        Of one client.
    epochs : tuple[int, ...]
        Of MOON's round (part a).
    steps : tuple[int, ...]
        Of FedGen's round (part b).
    clients : tuple[int, ...]
        Whose heads the generator is trained on (part c).
    server_steps : int
        Steps of the generator's training.
    replies : tuple[int, ...]
        To aggregate (part d).
    simulated_clients, rounds, simulated_epochs : int
        Of the simulation (part f). The first round is not counted: Ray's actors start in it.
    settings : dict[str, Any]
        Flat settings for parts a, b, d and f, on top of the ones that the papers use.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    threads: int = 1
    repetitions: int = 5
    examples: int = 2000
    epochs: tuple[int, ...] = (1, 10)
    steps: tuple[int, ...] = (20, 200)
    clients: tuple[int, ...] = (10, 100, 1000)
    server_steps: int = 50
    replies: tuple[int, ...] = (10, 100)
    simulated_clients: int = 10
    rounds: int = 4
    simulated_epochs: int = 10
    settings: dict[str, Any] = field(default_factory=dict)

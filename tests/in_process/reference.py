"""The undisturbed run, in this process: on a CPU it gives the bits that a deployment gives.

That it does is a test of its own (tests/deployment/test_federation.py, and for Ray
tests/scripts/test_simulation.py); so no test needs a second federation to compare with.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch
import torch
from flwr.app import Context, Message, RecordDict
from torch import Tensor

from client_app.app import app as client_app
from common import records
from server_app.app import serve
from tests.in_process.grid import (
    RUN_ID,
    SERVER_NODE,
    FakeClock,
    Fault,
    InProcessGrid,
    simulated,
    task_identity,
)
from tests.settings import make_run_config

CLIENTS = 2
SETTINGS: dict[str, Any] = {
    "algorithm": "moon+fedgen",
    "num-rounds": 3,
    "train.local-epochs": 1,
    "fedgen.server-steps": 5,
    "server.fraction-evaluate": 0.0,
    "server.min-clients": CLIENTS,
    # Everybody is needed: a round that lost somebody is run again, with the same result.
    "server.min-replies": CLIENTS,
    "server.start-timeout": 240.0,
}
"""Small, and with everything that has to survive: MOON's state and FedGen's generator."""


class _Grid(InProcessGrid):
    """Some instructions get lost on their way; some nodes are not there for a time."""

    lost: Collection[tuple[int, int]] = ()
    away: Collection[tuple[int, int]] = ()
    begun = 0

    def get_node_ids(self) -> Iterable[int]:
        return [
            node_id
            for node_id, (index, _) in self.nodes.items()
            if (index, self.begun + 1) not in self.away
        ]

    def _deliver(self, instruction: Message) -> None:
        if instruction.metadata.message_type == records.TRAIN:
            config = instruction.content.config_records[records.CONFIG]
            self.begun = int(config[records.ROUND])  # type: ignore[arg-type]
            if (self.nodes[instruction.metadata.dst_node_id][0], self.begun) in self.lost:
                return
        super()._deliver(instruction)


def reference(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    clients: int = CLIENTS,
    lost: Collection[tuple[int, int]] = (),
    faults: Iterable[Fault] = (),
    away: Collection[tuple[int, int]] = (),
    nodes: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Tensor]:
    """Run both apps here and return the final model.

    Parameters
    ----------
    folder : Path
        For results and states.
    settings : Mapping[str, Any]
        On the defaults.
    clients : int
    lost : Collection[tuple[int, int]]
        (client, round): the client never hears of that round, and remembers nothing of it.
    faults : Iterable[Fault]
        What happens to replies; the client has trained and remembers it.
    away : Collection[tuple[int, int]]
        (client, round): the client is offline when that round begins.
    nodes : Sequence[Mapping[str, Any]] or None
        Node configs, for sites with data of their own; None: ``clients`` parts of a data set.
    """
    run_config = make_run_config(**settings)
    context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), run_config)
    torch.set_num_threads(1)
    clock = FakeClock().clock()
    with task_identity(), mock.patch.dict(os.environ, {"MOONFLOWER_HOME": str(folder)}):
        grid = _Grid(client_app, nodes or simulated(clients), run_config, faults, clock)
        grid.lost, grid.away = lost, away
        experiment = serve(grid, context, clock)
    return safetensors.torch.load_file(experiment / "final" / "model.safetensors")


def differences(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that are not the same, bit for bit."""
    names = sorted(set(found) | set(expected))
    return [
        name
        for name in names
        if name not in found or name not in expected or not torch.equal(found[name], expected[name])
    ]

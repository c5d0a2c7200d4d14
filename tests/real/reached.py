"""Run the app with faults in this process, so that every point is passed.

``python -m tests.real.reached COPY``, where COPY is what ``make_app`` returned: in a process of
its own, since the faults are put into modules and stay there.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from flwr.app import Context, RecordDict

from tests.in_process.grid import RUN_ID, SERVER_NODE, InProcessGrid, simulated, task_identity
from tests.in_process.reference import CLIENTS, SETTINGS
from tests.settings import make_run_config


def main(copy: Path) -> None:
    """Play the rounds of ``SETTINGS``."""
    os.environ["MOONFLOWER_HOME"] = str(copy.parent / "moonflower")
    sys.path.insert(0, str(copy))
    client = importlib.import_module("injected.client")
    server = importlib.import_module("injected.server")
    run_config = make_run_config(**SETTINGS, experiment="reached")
    with task_identity():
        grid = InProcessGrid(client.app, simulated(CLIENTS), run_config)
        server.main(grid, Context(RUN_ID, SERVER_NODE, {}, RecordDict(), run_config))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

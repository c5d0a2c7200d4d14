"""Part e: a ClientApp's process from its start to the app, which every instruction pays for."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts.moonflower.repository import ROOT
from scripts.moonflower.research.benchmark.lines import Line
from scripts.moonflower.research.benchmark.measure import Prepare, Work, compare
from scripts.moonflower.research.benchmark.sizes import Sizes

_PROCESSES = {
    "app": "import client_app.app",
    "bare": "import torch, flwr",
    "Flower": "import torch; from flwr.app import Message; from flwr.clientapp import ClientApp",
    "torch": "import torch",
}


def start_up(sizes: Sizes) -> list[Line]:
    """Part e: seconds until a new process has imported the ClientApp."""
    contenders = {name: _process(code) for name, code in _PROCESSES.items()}
    found = compare(contenders, sizes.repetitions)
    seconds = {f"{name} s": found.median(name) for name in found.seconds}
    return [
        Line(
            "e",
            "process that imports the ClientApp: seconds / `import torch, flwr`",
            found.speed("bare", "app"),
            None,
            seconds,
        ),
        Line(
            "e",
            "process that imports the ClientApp: seconds / torch and an empty ClientApp",
            found.speed("Flower", "app"),
        ),
    ]


def _process(code: str) -> Prepare:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def work() -> None:
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)

    def prepare() -> Work:
        return work

    return prepare

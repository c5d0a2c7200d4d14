"""A run of an app on a federation, as ``flwr run --stream`` shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from tests.real.processes import SLOW, Group, wait_until


@dataclass
class Run:
    """A ``flwr run --stream`` that follows its run."""

    group: Group
    experiment: Path

    @property
    def log(self) -> str:
        """What the run has printed so far."""
        return self.group.printed()

    def wait_for(self, text: str, seconds: float = SLOW) -> float:
        """Wait until the log has ``text``."""
        return wait_until(lambda: text in self.log, f"{text!r} in the log", seconds, self.dump)

    def wait(self, seconds: float = SLOW) -> float:
        """Wait until the run is over."""
        return wait_until(lambda: not self.group.alive, "the end", seconds, self.dump)

    def wait_for_round(self, server_round: int) -> float:
        """Wait until the round is in ``metrics.jsonl``; return how long it took, in seconds."""
        return wait_until(
            lambda: self._written() >= server_round, f"round {server_round}", SLOW, self.dump
        )

    def _written(self) -> int:
        file = self.experiment / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.is_file() else 0

    def final(self) -> dict[str, Tensor]:
        """Return the final model's tensors."""
        file = self.experiment / "final" / "model.safetensors"
        if not file.is_file():
            raise AssertionError(f"there is no {file}; the log:\n{self.log}")
        return safetensors.torch.load_file(file)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``."""
        file = self.experiment / "metrics.jsonl"
        if not file.is_file():
            raise AssertionError(f"there is no {file}; the log:\n{self.log}")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def dump(self) -> str:
        """Return the end of the log, for the message of a test that fails."""
        return self.log[-6000:]

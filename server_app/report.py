"""What is known of a round when it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from common import records


@dataclass(frozen=True)
class Participation:
    """Who answered in one phase of a round, who did not, and why.

    Attributes
    ----------
    participants : Sequence[str]
        Clients whose replies were used, sorted.
    refused : Mapping[str, str]
        Reasons by client.
    missing : Sequence[str]
        Clients that did not answer in time, sorted.
    """

    participants: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    def record(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "participants": list(self.participants),
            "refused": dict(self.refused),
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class RoundReport:
    """One round; :meth:`record` is its line in ``metrics.jsonl``.

    Attributes
    ----------
    server_round, num_rounds : int
        From 1.
    train : Mapping
        The strategy's train metrics, means over clients, and ``num-examples``, their sum.
    training : Participation
    clients, global_model : Mapping or None
        See :mod:`server_app.evaluation`; None where not evaluated.
    evaluating : Participation or None
        Of the clients' evaluation.
    bytes_sent, bytes_received : int
        Of all messages of the round.
    seconds : Mapping[str, float]
        By phase, and ``total``.
    """

    server_round: int
    num_rounds: int
    train: Mapping[str, Any]
    training: Participation
    clients: Mapping[str, Any] | None
    global_model: Mapping[str, Any] | None
    evaluating: Participation | None
    bytes_sent: int
    bytes_received: int
    seconds: Mapping[str, float]

    @property
    def score(self) -> tuple[str, float] | None:
        """What ``best/`` is chosen by, and its value; None in a round without evaluation."""
        if self.global_model is not None and self.global_model["accuracy"] is not None:
            return "global accuracy", float(self.global_model["accuracy"])
        if self.clients is not None:
            return "mean client accuracy", float(self.clients["mean"])
        return None

    def record(self) -> dict[str, Any]:
        """Return the JSON form; numbers that are not finite become null."""
        line = {
            "round": self.server_round,
            "train": dict(self.train),
            "clients": self.clients,
            "global": self.global_model,
            **self.training.record(),
            "evaluation": self.evaluating.record() if self.evaluating else None,
            "bytes": {"sent": self.bytes_sent, "received": self.bytes_received},
            "seconds": dict(self.seconds),
        }
        return cast(dict[str, Any], finite(line))

    def line(self) -> str:
        """Return the line of progress that people read."""
        width = len(str(self.num_rounds))
        parts = [f"round {self.server_round:>{width}}/{self.num_rounds}"]
        loss = self.train.get(records.LOSS)
        if isinstance(loss, float):
            parts.append(f"loss {loss:.3f}")
        parts += describe_accuracy(self.global_model, self.clients)
        parts.append(f"{len(self.training.participants)} replies")
        failed = len(self.training.refused) + len(self.training.missing)
        if failed:
            parts.append(f"{failed} failed")
        parts.append(f"{self.seconds['total']:.1f} s")
        return "  ".join(parts)


def describe_accuracy(
    global_model: Mapping[str, Any] | None, clients: Mapping[str, Any] | None
) -> list[str]:
    """Return ``["global 0.912", "clients 0.893±0.040 (worst 0.810 client-0003)"]``, as known."""
    parts = []
    if global_model is not None and global_model["accuracy"] is not None:
        parts.append(f"global {global_model['accuracy']:.3f}")
    if clients is not None:
        worst = clients["worst"]
        parts.append(
            f"clients {clients['mean']:.3f}±{clients['std']:.3f} "
            f"(worst {worst['accuracy']:.3f} {worst['name']})"
        )
    return parts


def finite(value: object) -> object:
    """Return ``value`` with NaN and infinities as None, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value

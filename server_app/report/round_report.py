"""What is known of a round when it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from common import records
from common.tasks import Headline


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
    excluded : Sequence[str]
        Clients that were not asked because they failed a short time ago, sorted.
    dropped : int
        Replies that came too late, or a second time.
    unreadable : Sequence[str]
        Clients whose reply could not be unpacked, once for each such reply, sorted; all are among
        ``refused`` in one attempt or another.
    """

    participants: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    excluded: Sequence[str] = ()
    dropped: int = 0
    unreadable: Sequence[str] = ()


@dataclass(frozen=True)
class Updates:
    """How far the participants moved the model.

    Attributes
    ----------
    norms : Mapping[str, float]
        L2 norm of each client's change of the parameters, before any clipping.
    clipped : Sequence[str]
        Clients whose change was scaled down to ``server.max-update-norm``, sorted.
    cosines : Mapping[str, Mapping[str, float or None]]
        How far each went the way of all (:data:`server_app.replies.drift.Cosines`).
    """

    norms: Mapping[str, float] = field(default_factory=dict)
    clipped: Sequence[str] = ()
    cosines: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class TakenBack:
    """Why a round was played a second time.

    Attributes
    ----------
    client : str
        The one that was left out then: its reply was the most unlike the others'.
    norm : float
        L2 norm of its change of the parameters.
    why : str
        What was wrong with the model of the first time.
    """

    client: str
    norm: float
    why: str

    @property
    def reason(self) -> str:
        """Why its reply was refused."""
        return (
            f"the round was taken back, and of all replies its was the most unlike the others (its "
            f"change has norm {self.norm:.6g}): {self.why}"
        )


@dataclass(frozen=True)
class RoundReport:
    """One round; :meth:`record` is its line in ``metrics.jsonl``.

    Attributes
    ----------
    server_round, num_rounds : int
        From 1.
    headline : Headline
        The score that models are chosen by.
    train : Mapping
        The strategy's train metrics, means over clients, and ``num-examples``, their sum.
    training : Participation
    clients, global_model : Mapping or None
        See :mod:`server_app.report.evaluation`; None where not evaluated.
    evaluating : Participation or None
        Of the clients' evaluation.
    bytes_sent, bytes_received : int
        Of all messages of the round.
    seconds : Mapping[str, float]
        By phase, and ``total``.
    updates : Updates
    update_norm : float or None
        L2 norm of the change of the global model's parameters; None where nothing is shared.
    alarms : Sequence[str]
        What should be looked at (:mod:`server_app.report.alarms`).
    taken_back : TakenBack or None
        None where the first playing of the round counted.
    scheduled : Mapping[str, float]
        What the settings that change with the round were in it
        (:func:`common.schedules.numbers_of_round`).
    personal : Mapping or None
        As ``clients``, of their own models; None where not evaluated.
    """

    server_round: int
    num_rounds: int
    headline: Headline
    train: Mapping[str, Any]
    training: Participation
    clients: Mapping[str, Any] | None
    global_model: Mapping[str, Any] | None
    evaluating: Participation | None
    bytes_sent: int
    bytes_received: int
    seconds: Mapping[str, float]
    updates: Updates = Updates()
    update_norm: float | None = None
    alarms: Sequence[str] = ()
    taken_back: TakenBack | None = None
    scheduled: Mapping[str, float] = field(default_factory=dict)
    personal: Mapping[str, Any] | None = None

    @property
    def score(self) -> tuple[str, float] | None:
        """What ``best/`` is chosen by, and its value; None in a round without evaluation."""
        return score_of(self.headline, self.global_model, self.clients)

    def record(self) -> dict[str, Any]:
        """Return the JSON form; numbers that are not finite become null."""
        line = {
            "round": self.server_round,
            "scheduled": dict(self.scheduled),
            "train": dict(self.train),
            "clients": self.clients,
            "personal": self.personal,
            "global": self.global_model,
            **asdict(self.training),
            "evaluation": asdict(self.evaluating) if self.evaluating else None,
            "update-norm": self.update_norm,
            "update-norms": dict(self.updates.norms),
            "clipped": list(self.updates.clipped),
            "cosines": dict(self.updates.cosines),
            "taken-back": asdict(self.taken_back) if self.taken_back else None,
            "alarms": list(self.alarms),
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
            # A diverging loss may have forty digits.
            parts.append(f"loss {loss:.3f}" if abs(loss) < 1e6 else f"loss {loss:.3g}")
        parts += describe_scores(self.headline, self.global_model, self.clients, self.personal)
        parts.append(f"{len(self.training.participants)} replies")
        failed = len(self.training.refused) + len(self.training.missing)
        if failed:
            parts.append(f"{failed} failed")
        if self.training.excluded:
            parts.append(f"{len(self.training.excluded)} left out")
        parts.append(f"{self.seconds['total']:.1f} s")
        return "  ".join(parts)


def score_of(
    headline: Headline, global_model: Mapping[str, Any] | None, clients: Mapping[str, Any] | None
) -> tuple[str, float] | None:
    """Return what ``best/`` is chosen by, and its value; None without evaluation."""
    if global_model is not None and global_model[headline.name] is not None:
        return f"global {headline.name}", float(global_model[headline.name])
    if clients is not None and clients["mean"] is not None:
        return f"mean client {headline.name}", float(clients["mean"])
    return None


def describe_scores(
    headline: Headline,
    global_model: Mapping[str, Any] | None,
    clients: Mapping[str, Any] | None,
    personal: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return ``["global 0.912", "clients 0.893±0.040 (worst 0.810 client-0003)"]``, as known."""
    parts = []
    if global_model is not None and global_model[headline.name] is not None:
        parts.append(f"global {global_model[headline.name]:.3f}")
    for name, summary in (("clients", clients), ("personal", personal)):
        if summary is not None and summary["mean"] is not None:
            worst = summary["worst"]
            parts.append(
                f"{name} {summary['mean']:.3f}±{summary['std']:.3f} "
                f"(worst {worst[headline.name]:.3f} {worst['name']})"
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

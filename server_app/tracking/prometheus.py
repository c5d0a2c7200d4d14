"""An experiment as Prometheus reads it: the same text for node_exporter and for ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from server_app.tracking.numbers import Line

LABEL = "experiment"

GAUGES = {
    "moonflower_running": "Whether a server is working on the experiment.",
    "moonflower_finished": "Whether all rounds were played.",
    "moonflower_round": "The last round that is over.",
    "moonflower_rounds": "Rounds that there are to be.",
    "moonflower_last_round_timestamp_seconds": "When the last round was over.",
    "moonflower_score": "Scores of the last evaluated round, and losses: of the global model, of "
    "the clients' mean, and of the worst client.",
    "moonflower_client_score": "The headline score of each client in the last evaluated round.",
    "moonflower_clients": "Clients in the last round, by what became of them.",
    "moonflower_round_seconds": "Seconds of the last round, by phase.",
    "moonflower_update_norm": "L2 norm of the change of the global model in the last round.",
}
COUNTERS = {
    "moonflower_alarms": "Alarms so far.",
    "moonflower_refused_replies": "Replies refused so far, by client.",
    "moonflower_missing_replies": "Replies that did not come so far, by client.",
    "moonflower_bytes": "Bytes of all messages so far, by direction.",
    "moonflower_training_seconds": "Seconds of all rounds so far.",
}
LABELS: Mapping[str, tuple[str, ...]] = {
    "moonflower_score": ("of", "score"),
    "moonflower_client_score": ("client",),
    "moonflower_clients": ("state",),
    "moonflower_round_seconds": ("phase",),
    "moonflower_refused_replies": ("client",),
    "moonflower_missing_replies": ("client",),
    "moonflower_bytes": ("direction",),
}

_Key = tuple[str, ...]


@dataclass
class Standing:
    """Where an experiment stands: what :meth:`add` has seen of its rounds.

    Attributes
    ----------
    experiment : str
    rounds : int
        That there are to be; 0: not known, and not said.
    """

    experiment: str
    rounds: int = 0
    running: bool = True
    finished: bool = False
    ended: float = 0.0
    _values: dict[str, dict[_Key, float]] = field(default_factory=dict)

    def add(self, line: Line, moment: float) -> None:
        """Take the next round, which was over at ``moment``, in seconds since 1970."""
        self.ended = moment
        self._set("moonflower_round", {(): line["round"]})
        self._set("moonflower_clients", _clients(line))
        self._set("moonflower_round_seconds", {(p,): s for p, s in line["seconds"].items()})
        self._set("moonflower_update_norm", {(): line.get("update-norm")})
        if scores := _scores(line):
            self._set("moonflower_score", scores)
            per_client = (line.get("clients") or {}).get("per-client", {})
            self._set("moonflower_client_score", {(name,): s for name, s in per_client.items()})
        self._count("moonflower_alarms", (), len(line.get("alarms", ())))
        for name in line["refused"]:
            self._count("moonflower_refused_replies", (name,), 1)
        for name in line["missing"]:
            self._count("moonflower_missing_replies", (name,), 1)
        for direction, number in line["bytes"].items():
            self._count("moonflower_bytes", (direction,), number)
        self._count("moonflower_training_seconds", (), line["seconds"]["total"])

    def samples(self) -> Mapping[str, Mapping[_Key, float]]:
        """Return all values, by metric and by its labels without the experiment."""
        now: dict[str, dict[_Key, float]] = {
            "moonflower_running": {(): float(self.running)},
            "moonflower_finished": {(): float(self.finished)},
        }
        if self.rounds:
            now["moonflower_rounds"] = {(): self.rounds}
        if self.ended:
            now["moonflower_last_round_timestamp_seconds"] = {(): self.ended}
        return {**now, **self._values}

    def _set(self, name: str, values: Mapping[_Key, float | None]) -> None:
        # What is not defined in this round keeps no value of an earlier one.
        self._values[name] = {key: value for key, value in values.items() if value is not None}

    def _count(self, name: str, key: _Key, more: float) -> None:
        counts = self._values.setdefault(name, {})
        counts[key] = counts.get(key, 0) + more


def exposition(standings: Iterable[Standing], more: Iterable[Metric] = ()) -> bytes:
    """Return the text of all experiments, and of ``more`` metrics."""
    seen = list(standings)
    families: list[Metric] = []
    for kind, described in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
        for name, text in described.items():
            family = kind(name, text, labels=(LABEL, *LABELS.get(name, ())))
            for each in seen:
                for key, value in each.samples().get(name, {}).items():
                    family.add_metric((each.experiment, *key), value)
            if family.samples:
                families.append(family)
    registry = CollectorRegistry()
    registry.register(_Fixed([*families, *more]))
    return generate_latest(registry)


class _Fixed:
    """What prometheus_client calls a collector, of metrics that are known."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def _clients(line: Line) -> dict[_Key, float | None]:
    states = ("participants", "refused", "missing", "excluded", "unreadable")
    return {(state,): len(line.get(state, ())) for state in states}


def _scores(line: Line) -> dict[_Key, float | None]:
    """Return the numbers of an evaluated round that are one number each."""
    clients: Mapping[str, Any] = line.get("clients") or {}
    worst = clients.get("worst") or {}
    headline = next((key for key in worst if key != "name"), "")
    found: dict[_Key, float | None] = {}
    for name, value in (line.get("global") or {}).items():
        if _is_number(value) and name != "examples":
            found["global", name] = value
    for of, name, value in (
        ("clients", headline, clients.get("mean")),
        ("worst", headline, worst.get(headline)),
        ("clients", "loss", clients.get("loss")),
    ):
        if _is_number(value) and name:
            found[of, name] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

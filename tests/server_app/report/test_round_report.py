"""The line of a round, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

from common.tasks import Headline
from server_app.report.round_report import Participation, RoundReport, Updates, finite

CLIENTS = {"mean": 0.893, "std": 0.04, "worst": {"name": "client-0003", "accuracy": 0.81}}


def report(**changes: Any) -> RoundReport:
    """Return the report of round 3 of 20."""
    values: dict[str, Any] = {
        "server_round": 3,
        "num_rounds": 20,
        "headline": Headline("accuracy"),
        "train": {"loss": 1.234, "num-examples": 90},
        "training": Participation(("a", "b"), excluded=("d",), dropped=2),
        "clients": CLIENTS,
        "global_model": {"accuracy": 0.912, "loss": 0.5, "per-class": [1.0, None]},
        "evaluating": Participation(("a",), {"b": "no"}, ("c",), unreadable=("b",)),
        "bytes_sent": 10,
        "bytes_received": 20,
        "seconds": {"train": 2.0, "total": 2.1},
        "updates": Updates({"a": 0.5, "b": 7.0}, ("b",), {"a": {"update": 0.5}}),
        "update_norm": 3.0,
        "alarms": ("look",),
        "scheduled": {"moon.mu": 2.0},
    }
    return RoundReport(**values | changes)


def test_the_line_of_progress() -> None:
    assert report().line() == (
        "round  3/20  loss 1.234  global 0.912  clients 0.893±0.040 (worst 0.810 client-0003)  "
        "2 replies  1 left out  2.1 s"
    )


def test_the_line_has_the_clients_own_models_beside_the_global_one() -> None:
    own = {**CLIENTS, "mean": 0.95, "std": 0.01}
    assert (
        "client-0003)  personal 0.950±0.010 (worst 0.810 client-0003)"
        in report(personal=own).line()
    )


def test_the_line_leaves_out_what_was_not_evaluated_and_counts_failures() -> None:
    training = Participation(("a",), {"b": "NaN"}, ("c", "d"))
    line = report(clients=None, global_model=None, training=training).line()
    assert line == "round  3/20  loss 1.234  1 replies  3 failed  2.1 s"


def test_the_record_has_all_keys_and_is_strict_json() -> None:
    line = json.dumps(
        report(train={"loss": float("nan"), "x": [float("inf"), 1.0]}).record(), allow_nan=False
    )
    assert json.loads(line) == {
        "round": 3,
        "scheduled": {"moon.mu": 2.0},
        "train": {"loss": None, "x": [None, 1.0]},
        "clients": CLIENTS,
        "personal": None,
        "global": {"accuracy": 0.912, "loss": 0.5, "per-class": [1.0, None]},
        "participants": ["a", "b"],
        "refused": {},
        "missing": [],
        "excluded": ["d"],
        "dropped": 2,
        "unreadable": [],
        "evaluation": {
            "participants": ["a"],
            "refused": {"b": "no"},
            "missing": ["c"],
            "excluded": [],
            "dropped": 0,
            "unreadable": ["b"],
        },
        "update-norm": 3.0,
        "update-norms": {"a": 0.5, "b": 7.0},
        "clipped": ["b"],
        "cosines": {"a": {"update": 0.5}},
        "taken-back": None,
        "alarms": ["look"],
        "bytes": {"sent": 10, "received": 20},
        "seconds": {"train": 2.0, "total": 2.1},
    }


def test_the_best_is_chosen_by_global_accuracy_else_by_the_clients_mean() -> None:
    assert report().score == ("global accuracy", 0.912)
    assert report(global_model=None).score == ("mean client accuracy", 0.893)
    assert report(global_model={"accuracy": None}).score == ("mean client accuracy", 0.893)
    assert report(global_model=None, clients=None).score is None


def test_finite_leaves_other_values_alone() -> None:
    assert finite({"a": (1, "x", None, True), 2: -float("inf")}) == {
        "a": [1, "x", None, True],
        "2": None,
    }

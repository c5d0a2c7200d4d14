"""What makes somebody look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from common.tasks.classification import Classification
from server_app.report.alarms import alarms
from server_app.report.history import Outcome
from server_app.report.round_report import Participation, RoundReport, Updates
from tests.settings import make_settings


def found(
    num_classes: int = 10,
    settings: dict[str, Any] | None = None,
    history: Sequence[Outcome] = (),
    **changes: Any,
) -> str:
    """Return the alarms of a healthy round 12 with changes, as one text."""
    task = Classification(num_classes)
    values: dict[str, Any] = {
        "server_round": 12,
        "num_rounds": 20,
        "headline": task.headline,
        "train": {"loss": 0.4, "num-examples": 90},
        "training": Participation(("a", "b")),
        "clients": {"mean": 0.8, "loss": 0.6},
        "global_model": {"accuracy": 0.9, "loss": 0.5},
        "evaluating": Participation(("a", "b")),
        "bytes_sent": 0,
        "bytes_received": 0,
        "seconds": {"total": 1.0},
        "updates": Updates({"a": 0.5, "b": 7.0}),
        "update_norm": 3.0,
    }
    server = make_settings(**settings or {}).server
    return "\n".join(alarms(RoundReport(**values | changes), server, task, history))


def test_a_healthy_round_raises_none() -> None:
    assert found() == ""


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_named(loss: float) -> None:
    assert "the train loss is not finite: lower train.learning-rate" in found(train={"loss": loss})
    text = found(global_model={"accuracy": 0.9, "loss": loss}, clients={"mean": 0.8, "loss": loss})
    assert "the loss of the global model and the clients' loss is not finite" in text


def test_clients_whose_training_diverged_are_named_and_no_others() -> None:
    refused = {"c": "array 'w' holds NaN or infinity in 2 of 6 places", "d": "disk full"}
    text = found(training=Participation(("a",), refused))
    assert text.startswith("the training of c diverged (NaN or infinity in the reply)")


# 10 classes: 1.5 / 10.
@pytest.mark.parametrize(("accuracy", "alarmed"), [(0.1, True), (0.15, True), (0.151, False)])
def test_accuracy_at_the_level_of_guessing(accuracy: float, alarmed: bool) -> None:
    text = found(global_model={"accuracy": accuracy, "loss": 0.5})
    assert ("after 12 rounds global accuracy is" in text) is alarmed


@pytest.mark.parametrize(("after", "alarmed"), [(10, True), (12, True), (13, False), (0, False)])
def test_guessing_is_allowed_in_the_first_rounds(after: int, alarmed: bool) -> None:
    text = found(settings={"server.alarm-rounds": after}, global_model={"accuracy": 0.1, "loss": 1})
    assert bool(text) is alarmed


def test_without_a_global_accuracy_the_clients_mean_is_looked_at() -> None:
    assert "mean client accuracy is 0.120" in found(global_model=None, clients={"mean": 0.12})


def test_a_round_without_evaluation_raises_none() -> None:
    assert found(global_model=None, clients=None, evaluating=None) == ""


def test_a_client_that_changed_nothing_is_named() -> None:
    text = found(updates=Updates({"a": 0.0, "b": 1e-30}))
    assert text.startswith("a sent back the model as it was")


def test_a_global_model_that_stands_still_is_said() -> None:
    assert "the global model has not changed" in found(update_norm=0.0)
    assert found(update_norm=None) == ""


def test_patience_over_a_metric_that_no_round_has_is_said() -> None:
    watching = {"server.patience": 3, "server.stop-metric": "global-score"}
    assert "server.patience watches global-score" in found(settings=watching, global_model=None)
    assert found(settings=watching) == ""
    assert found(settings=watching, global_model=None, clients=None) == ""
    watching["server.stop-metric"] = "clients-loss"
    assert "watches clients-loss" in found(settings=watching, clients=None)
    assert found(settings=watching, global_model=None) == ""


def test_a_client_is_named_when_it_is_silent_twice_running_and_not_before() -> None:
    before = [Outcome(10, ("b",), True, {}, ("b",)), Outcome(11, ("c",), True, {}, ("c",))]
    silent = Participation(("a",), {}, ("b", "c"))
    text = found(training=silent, history=before)
    assert text.startswith("c did not answer in this round and the one before")
    assert "restart its SuperNode" in text
    assert found(training=silent) == ""

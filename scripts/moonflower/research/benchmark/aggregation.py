"""Part d: from the replies to the next global model, next to Flower's own FedAvg."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from common import records
from common.config import Settings
from common.data import data_spec
from common.models import SplitModel, build_model
from scripts.moonflower.research.benchmark.lines import Line
from scripts.moonflower.research.benchmark.measure import Prepare, Work, compare
from scripts.moonflower.research.benchmark.one_client import settings_of
from scripts.moonflower.research.benchmark.sizes import Sizes
from server_app.replies.admission import Gate, ModelRules, Rules
from server_app.strategies import build_strategy


class DifferentResultError(RuntimeError):
    """App and FedAvg gave different models, so that comparing their seconds says nothing."""


@dataclass(frozen=True)
class Round:
    """One round's replies.

    Attributes
    ----------
    settings : Settings
    model : SplitModel
        The global model that was sent.
    updates : Sequence[ArrayRecord]
        What the clients made of it.
    """

    settings: Settings
    model: SplitModel
    updates: Sequence[ArrayRecord]

    def label_counts(self) -> Mapping[str, list[int]]:
        """Return what every client said it holds."""
        classes = self.model.outputs
        return {_name(number): [1000] * classes for number in range(len(self.updates))}

    def name_of(self, node_id: int) -> str:
        """Return the name of a node."""
        return _name(node_id)

    def replies(self) -> list[Message]:
        """Return fresh messages around the same arrays."""
        return [_reply(number, arrays) for number, arrays in enumerate(self.updates)]


def make_round(settings: Settings, replies: int) -> Round:
    """Return a round with so many replies, each a different model."""
    model = build_model(settings.model, data_spec(settings.data), settings.seed)
    random = torch.Generator().manual_seed(0)
    state = model.state_dict()
    updates = []
    for _ in range(replies):
        changed = {
            name: tensor + 0.01 * torch.randn(tensor.shape, generator=random)
            if tensor.is_floating_point()
            else tensor
            for name, tensor in state.items()
        }
        updates.append(records.to_arrays(changed))
    return Round(settings, model, updates)


def app_aggregation(this: Round, replies: list[Message], *, checked: bool) -> ArrayRecord:
    """Return the next global model as the server makes it.

    Parameters
    ----------
    this : Round
    replies : list[Message]
    checked : bool
        With all that comes before aggregation (is the reply usable, how far did it move) and
        after it (dtypes), or the app's strategy alone.
    """
    sent = records.to_arrays(this.model.state_dict())
    parameters = frozenset(name for name, _ in this.model.named_parameters())
    if checked:
        rules = ModelRules(sent, parameters)
        gate = Gate(Rules(server_round=1, model=rules, metrics={records.LOSS: None}))
        for number, reply in enumerate(replies):
            if reason := gate.receive(_name(number), reply):
                raise DifferentResultError(f"the app refuses a reply of the benchmark: {reason}")
        replies = list(gate.close().admitted.values())
    strategy = build_strategy(this.settings, this.model, this, torch.device("cpu"))
    arrays, _ = strategy.aggregate_train(1, replies)
    return records.like(_there(arrays), sent) if checked else _there(arrays)


def flowers_aggregation(replies: list[Message]) -> ArrayRecord:
    """Return the next global model as Flower's FedAvg makes it."""
    arrays, _ = FedAvg().aggregate_train(1, replies)
    return _there(arrays)


def aggregation(sizes: Sizes) -> list[Line]:
    """Part d: seconds from the replies to the next global model."""
    logging.getLogger("flwr").setLevel(logging.WARNING)  # a line for every aggregation
    return [line for replies in sizes.replies for line in _of_replies(replies, sizes)]


def _of_replies(replies: int, sizes: Sizes) -> list[Line]:
    this = make_round(settings_of("moon-cifar10", sizes, {}), replies)
    expected = flowers_aggregation(this.replies())
    for checked in (False, True):
        _compare_results(app_aggregation(this, this.replies(), checked=checked), expected)
    found = compare(
        {
            "strategy": _app(this, checked=False),
            "server": _app(this, checked=True),
            "FedAvg": _flower(this),
        },
        sizes.repetitions,
    )
    milliseconds = {f"{name} ms": 1000 * found.median(name) for name in found.seconds}
    what = f"{replies} replies, equal result"
    return [
        Line("d", f"{what}: app's strategy / FedAvg", found.speed("strategy", "FedAvg")),
        Line(
            "d",
            f"{what}: app's strategy with all checks / FedAvg",
            found.speed("server", "FedAvg"),
            None,
            milliseconds,
        ),
    ]


def _app(this: Round, *, checked: bool) -> Prepare:
    def prepare() -> Work:
        replies = this.replies()
        return lambda: app_aggregation(this, replies, checked=checked)

    return prepare


def _flower(this: Round) -> Prepare:
    def prepare() -> Work:
        replies = this.replies()
        return lambda: flowers_aggregation(replies)

    return prepare


def _compare_results(found: ArrayRecord, expected: ArrayRecord) -> None:
    for name, array in expected.items():
        if not np.array_equal(found[name].numpy(), array.numpy()):
            raise DifferentResultError(
                f"{name}: the app's model is not the one of Flower's FedAvg, so their seconds "
                "can't be compared. Take settings that average as FedAvg does"
            )


def _there(arrays: ArrayRecord | None) -> ArrayRecord:
    if arrays is None:
        raise DifferentResultError("a strategy made no model of the benchmark's replies")
    return arrays


def _name(number: int) -> str:
    return f"client-{number:04d}"


def _reply(number: int, arrays: ArrayRecord) -> Message:
    content = RecordDict(
        {
            records.ARRAYS: arrays,
            records.METRICS: MetricRecord({records.NUM_EXAMPLES: 100 + number, "loss": 1.0}),
            records.REPLY: ConfigRecord({records.ROUND: 1}),
        }
    )
    metadata = Metadata(
        run_id=1,
        message_id=f"{number}",
        src_node_id=number,
        dst_node_id=0,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=3600.0,
        message_type=records.TRAIN,
    )
    return Message(content=content, metadata=metadata)  # type: ignore[call-overload,no-any-return]

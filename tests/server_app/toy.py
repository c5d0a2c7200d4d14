"""A ClientApp without data or model, told by its node config what to answer."""

from __future__ import annotations

from functools import cache
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from common import records
from common.config import Settings
from common.tasks import put_sums
from common.tasks.base import Sum
from common.tasks.classification import Classification
from tests.answered import sums_of_answers
from tests.in_process.grid import FakeClock, Fault, InProcessGrid
from tests.settings import make_settings

TASK = Classification(10)


def toy_client_app() -> ClientApp:
    """Return an app whose clients add ``step`` of their node config to every weight.

    They report what FedAvg's clients report, ``step`` for each number.

    Other keys of the node config: ``name``, ``examples``, ``labels`` (instead, how many of each),
    ``partition``, ``error``, ``correct`` (of 10).
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        config = context.node_config
        answer = {
            records.CLIENT_NAME: config["name"],
            records.CLIENT_LABELS: config.get("labels", [config.get("examples", 5), *[0] * 9]),
            records.CLIENT_PARTITION: config.get("partition", ""),
            records.CLIENT_DEVICE: "cpu",
            records.CLIENT_VERSIONS: "",
            records.CLIENT_ERROR: config.get("error", ""),
        }
        return Message(RecordDict({records.CLIENT: ConfigRecord(answer)}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        step = float(context.node_config.get("step", 1.0))
        tensors = records.to_tensors(message.content.array_records[records.ARRAYS])
        moved = {
            name: tensor + step if tensor.is_floating_point() else tensor + 1
            for name, tensor in tensors.items()
        }
        examples = int(context.node_config.get("examples", 5))
        reported = dict.fromkeys(records.train_metrics(Classification.loss_name, []), step)
        metrics = MetricRecord({records.NUM_EXAMPLES: examples, **reported})
        content = reply_content(records.to_arrays(moved), metrics, round_of(message))
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        correct = int(context.node_config.get("correct", 5))
        content = evaluation_of(correct)
        content[records.REPLY] = ConfigRecord({records.ROUND: round_of(message)})
        return Message(content, reply_to=message)

    return app


@cache
def measured(correct: int) -> dict[str, Sum]:
    """Return the sums of ten examples of label 0, ``correct`` of which a model gets right."""
    return sums_of_answers(TASK, [0] * correct + [1] * (10 - correct), [0] * 10)


def evaluation_of(correct: int) -> RecordDict:
    """Return the records of an evaluation reply: so many right of 10, and a loss of 1 in all."""
    claimed = {records.LOSS: 1.0, "class-correct": [correct, *[0] * 9]}
    content = RecordDict()
    put_sums(content, {**measured(min(correct, 10)), **claimed}, TASK)
    return content


def round_of(instruction: Message) -> int:
    """Return the round that an instruction belongs to."""
    server_round = instruction.content.config_records[records.CONFIG][records.ROUND]
    assert isinstance(server_round, int)
    return server_round


def reply_content(arrays: ArrayRecord, metrics: MetricRecord, server_round: int = 1) -> RecordDict:
    """Return the content of a train reply."""
    answers = ConfigRecord({records.ROUND: server_round})
    return RecordDict({records.ARRAYS: arrays, records.METRICS: metrics, records.REPLY: answers})


def named(*names: str, **config: Any) -> list[dict[str, Any]]:
    """Return node configs of toy clients."""
    return [{"name": name, **config} for name in names]


def grid_of(
    fake: FakeClock, configs: list[dict[str, Any]], *faults: Fault, cls: Any = InProcessGrid
) -> InProcessGrid:
    """Return a grid of toy clients."""
    grid: InProcessGrid = cls(toy_client_app(), configs, {}, faults, fake.clock())
    return grid


def settings_for(min_clients: int, **overrides: Any) -> Settings:
    """Return settings that wait 60 s for ``min_clients``."""
    return make_settings(**{"server.min-clients": min_clients, "experiment": "x", **overrides})


def node_of(grid: InProcessGrid, name: str) -> int:
    """Return the first node of that name."""
    return next(n for n, (_, config) in grid.nodes.items() if config["name"] == name)

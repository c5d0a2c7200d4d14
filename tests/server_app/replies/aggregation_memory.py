"""Measures the server's peak memory when it aggregates many replies.

``python -m tests.server_app.replies.aggregation_memory --replies 100 --in-memory-mb 512``

Replies are made at the moment they are pulled. With ``--way flower`` they are collected in a list
and given to Flower's own FedAvg, as ``Strategy.start`` does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, MultiKrum

from common import records
from server_app.exchange.clock import Clock
from server_app.exchange.exchange import Patience, exchange
from server_app.exchange.postbox import Letter, Room
from server_app.exchange.reminders import Reminders
from server_app.replies.admission import Gate, ModelRules, Rules
from server_app.replies.spool import MB, Spool
from tests.in_process.grid import task_identity
from tests.server_app.toy import reply_content

LAYERS = 10
AGGREGATORS = {
    "fedavg": FedAvg,
    "fedmedian": FedMedian,
    "fedtrimmedavg": FedTrimmedAvg,
    "multikrum": MultiKrum,
}


def model(megabytes: float, node: int) -> ArrayRecord:
    """Return float32 arrays of that size altogether, others for every node."""
    size = int(megabytes * MB / 4 / LAYERS)
    values = np.linspace(-1, 2, size, dtype=np.float32)
    return ArrayRecord(
        {f"layer{index}": Array(values * np.float32(node + 0.1)) for index in range(LAYERS)}
    )


class LazyGrid(Grid):
    """Makes a reply when it is pulled."""

    def __init__(self, megabytes: float) -> None:
        self._megabytes = megabytes
        self._waiting: dict[str, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"message-{number}"
            self._waiting[f"message-{number}"] = message
        return list(self._waiting)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answer(self._waiting.pop(key)) for key in message_ids]

    def letters(self, asked: Sequence[str], room: Room) -> Iterator[Letter]:
        """As from a SuperLink, one at a time."""
        for key in asked:
            yield Letter(key, self._answer(self._waiting.pop(key)))

    def discard(self, asked: Sequence[str]) -> Iterator[tuple[str, bool]]:
        raise NotImplementedError

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        metrics = MetricRecord({records.NUM_EXAMPLES: node, records.LOSS: 1.0})
        return Message(reply_content(model(self._megabytes, node), metrics), reply_to=message)

    def get_node_ids(self) -> Iterable[int]:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError


def peak_mb() -> float:
    """Return the largest resident memory of this process so far (Linux).

    Not ``ru_maxrss``: a child begins with that of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def collect(grid: LazyGrid, args: argparse.Namespace) -> list[Message]:
    """Send to all nodes and return their replies, as Moonflower or as Flower does."""
    content = RecordDict({records.CONFIG: ConfigRecord({records.ROUND: 1})})
    messages = [Message(content, node, records.TRAIN) for node in range(1, args.replies + 1)]
    if args.way == "flower":
        return list(grid.pull_messages(list(grid.push_messages(messages))))
    reference = model(args.megabytes, 0)
    parameters = frozenset(reference)
    spool = Spool(args.folder, args.in_memory_mb * MB)
    rules = Rules(1, ModelRules(reference, parameters), {records.LOSS: None})
    gate = Gate(rules, spool.keep)
    exchange(
        grid,
        messages,
        lambda name, reply: not gate.receive(name, reply),
        name_of=lambda node: f"client-{node:04d}",
        patience=Patience(3600.0, 1, 60.0),
        clock=Clock(),
        reminders=Reminders(),
        room=Room.of_a_model(reference),
    )
    return list(gate.close().admitted.values())


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replies", type=int, default=100)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--in-memory-mb", type=int, default=512)
    parser.add_argument("--way", choices=["moonflower", "flower"], default="moonflower")
    parser.add_argument("--aggregator", choices=sorted(AGGREGATORS), default="fedavg")
    parser.add_argument("--folder", type=Path, default=Path())
    args = parser.parse_args()
    with task_identity():
        model(args.megabytes, 0)
        before, began = peak_mb(), time.perf_counter()
        replies = collect(LazyGrid(args.megabytes), args)
        collected = time.perf_counter() - began
        strategy = AGGREGATORS[args.aggregator]()
        arrays, _ = strategy.aggregate_train(1, replies)
        if arrays is None:
            raise RuntimeError("nothing was aggregated")
    total = float(sum(array.numpy().sum(dtype=np.float64) for array in arrays.values()))
    line = {
        "way": args.way,
        "aggregator": args.aggregator,
        "replies": args.replies,
        "model MB": args.megabytes,
        "peak MB": round(peak_mb() - before, 1),
        "collect s": round(collected, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "sum": total,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()

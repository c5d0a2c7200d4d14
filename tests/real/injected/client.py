"""The ClientApp with faults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flwr.supernode.runtime.run_clientapp as flower
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

import client_app.app as product
from common import records
from common.node import Node

from .points import reach
from .replies import CHANGES


class FaultyClientApp(ClientApp):
    """Calls the real one; a process serves one message, so patches need no undoing."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message, unless a fault strikes."""
        if message.metadata.message_type != records.TRAIN:
            return product.app(message, context)
        node = Node.from_config(context.node_config)
        server_round = int(message.content.config_records[records.CONFIG][records.ROUND])

        def reached(point: str) -> str:
            return reach(point, node.name, server_round, node.folders.state)

        reached("arriving")
        _patch_training(reached)
        _patch_writing(reached)
        _patch_uploading(reached)
        reply = product.app(message, context)
        change = CHANGES.get(reached("replying"))
        return change(reply) if change else reply


def _patch_training(reached: Callable[[str], str]) -> None:
    honest = product.train

    def second_batch_reaches(batches: Iterable[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 1:
                reached("training")
            yield batch

    def train(*arguments: Any) -> dict[str, float]:
        return honest(
            *(
                second_batch_reaches(each) if isinstance(each, product.TrainBatches) else each
                for each in arguments
            )
        )

    product.train = train


def _patch_writing(reached: Callable[[str], str]) -> None:
    """The state's new file is on the disk, but does not have its name yet."""
    honest = os.replace

    def replace(source: Any, target: Any, **rest: Any) -> None:
        if os.path.basename(target).startswith("round-"):  # noqa: PTH119
            reached("writing")
        honest(source, target, **rest)

    os.replace = replace


def _patch_uploading(reached: Callable[[str], str]) -> None:
    """The SuperNode has the reply's frame and some of its objects."""
    honest = flower.push_objects

    def push_objects(objects: Any, push: Callable[[str, bytes], None], **rest: Any) -> None:
        pushed: list[str] = []

        def counting(object_id: str, content: bytes) -> None:
            if len(pushed) == 3:
                reached("uploading")
            push(object_id, content)
            pushed.append(object_id)

        honest(objects, counting, **rest)

    flower.push_objects = push_objects


app = FaultyClientApp()

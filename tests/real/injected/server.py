"""The ServerApp with faults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

import server_app.app as product
from common import records
from common.node import Folders
from server_app.exchange import exchange
from server_app.exchange.postbox import Letter
from server_app.strategies.fedgen import fedgen

from .points import SERVER, reach

app = ServerApp()


class _Moment:
    """The round that the server is in; a run has a process of its own."""

    server_round = 0


def _reached(point: str) -> None:
    reach(point, SERVER, _Moment.server_round, Folders.find().output)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the real ServerApp with faults around it."""
    _patch_grid(grid)
    _patch_exchange()
    _patch_strategy()
    _patch_generator()
    _patch_checkpoint()
    product.main(grid, context)


def _patch_grid(grid: Grid) -> None:
    push = grid.push_messages

    def push_messages(messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        trains = [m for m in messages if m.metadata.message_type == records.TRAIN]
        if trains:
            config = trains[0].content.config_records[records.CONFIG]
            _Moment.server_round = int(config[records.ROUND])
            _reached("sending")
        return push(messages)

    grid.push_messages = push_messages


def _patch_exchange() -> None:
    honest = exchange.letters

    def letters(*arguments: Any) -> Iterator[Letter]:
        for letter in honest(*arguments):
            reply = letter.message
            if reply and reply.has_content() and records.ARRAYS in reply.content:
                _reached("waiting")  # with the first reply at hand
            yield letter

    exchange.letters = letters


def _patch_strategy() -> None:
    """The models are averaged, the generator is not trained yet."""
    build = product.build_strategy

    def build_strategy(*arguments: Any, **rest: Any) -> Any:
        outermost = innermost = build(*arguments, **rest)
        while hasattr(innermost, "strategy"):
            innermost = innermost.strategy
        honest = innermost.aggregate_train

        def aggregate_train(*arguments: Any, **rest: Any) -> Any:
            result = honest(*arguments, **rest)
            _reached("aggregating")
            return result

        innermost.aggregate_train = aggregate_train
        return outermost

    product.build_strategy = build_strategy


def _patch_generator() -> None:
    honest = fedgen.train_generator

    def train_generator(generator: Any, optimizer: Any, *rest: Any) -> dict[str, float]:
        steps = 0

        def count(*_: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == 2:
                _reached("distilling")

        hook = optimizer.register_step_post_hook(count)
        try:
            return honest(generator, optimizer, *rest)
        finally:
            hook.remove()

    fedgen.train_generator = train_generator


def _patch_checkpoint() -> None:
    """A part of the new checkpoint is written; and: all of it is, but without its name."""
    rename, fsync = os.rename, os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        # Linux only, as these tests are.
        if "/checkpoints/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            _reached("writing-checkpoint")

    def naming(source: Any, target: Any, **rest: Any) -> None:
        if "/checkpoints/round-" in str(target):
            _reached("naming-checkpoint")
        rename(source, target, **rest)

    os.fsync, os.rename = watched, naming

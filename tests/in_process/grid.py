"""A Flower Grid without Flower: messages go straight to a ClientApp."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from common import records
from server_app.exchange.clock import Clock
from tests.settings import make_run_config

RUN_ID, SERVER_NODE = 7, 1


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.naps: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0, f"a sleep of {seconds} s"
        self.naps.append(seconds)
        self.time += seconds

    def clock(self) -> Clock:
        return Clock(now=self.now, sleep=self.sleep)


@dataclass(frozen=True)
class Late:
    """A reply that comes ``seconds`` after the instruction."""

    reply: Message
    seconds: float


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a node's replies.

    ``change`` gets the honest reply and returns what arrives: a Message, a :class:`Late`, or None
    for nothing at all. ``node`` is an index into the node configs; ``rounds`` None means all.
    """

    node: int
    change: Callable[[Message], Message | Late | None]
    rounds: Collection[int] | None = None
    message_type: str = records.TRAIN

    def hits(self, node: int, instruction: Message) -> bool:
        config = instruction.content.config_records.get(records.CONFIG, {})
        return (
            node == self.node
            and instruction.metadata.message_type == self.message_type
            and (self.rounds is None or config.get(records.ROUND) in self.rounds)
        )


def never(reply: Message) -> None:
    """The node does not answer."""


def late(seconds: float) -> Callable[[Message], Late]:
    """The node answers so long after the instruction."""
    return lambda reply: Late(reply, seconds)


def fails(reason: str) -> Callable[[Message], Message]:
    """The ClientApp raises."""

    def change(reply: Message) -> Message:
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason)
        return Message(error=error, metadata=reply.metadata)  # type: ignore[call-overload]

    return change


def with_nan(reply: Message) -> Message:
    """The first number of the first array is NaN."""
    arrays = dict(reply.content.array_records[records.ARRAYS])
    name = next(iter(arrays))
    values = arrays[name].numpy().copy()
    values.flat[0] = np.nan
    arrays[name] = Array(values)
    reply.content[records.ARRAYS] = ArrayRecord(arrays)
    return reply


class InProcessGrid(Grid):
    """Runs the ClientApp at push, each message with copies of its own.

    A context is made anew for every message: as in a deployment, where every message meets a new
    process, a client has nothing but its disk. Node ids run against the order of the configs, so
    that nothing passes by relying on theirs.
    """

    def __init__(
        self,
        client_app: Callable[[Message, Context], Message],
        node_configs: Sequence[Mapping[str, Any]],
        run_config: Mapping[str, Any] | None = None,
        faults: Iterable[Fault] = (),
        clock: Clock | None = None,
    ) -> None:
        self.client_app = client_app
        self.run_config = dict(run_config or {})
        self.faults = list(faults)
        self.nodes: dict[int, tuple[int, dict[str, Any]]] = {}
        self.sent: list[Message] = []
        self.overrides: dict[str, Any] = {}
        self._clock = clock or Clock()
        self._replies: dict[str, tuple[float, Message]] = {}
        for node_config in node_configs:
            self.connect(node_config)

    def connect(self, node_config: Mapping[str, Any]) -> int:
        """Add a node, return its id."""
        self._connected = getattr(self, "_connected", 0) + 1
        node_id = 10_000_000 - 1_009 * self._connected
        self.nodes[node_id] = (self._connected - 1, dict(node_config))
        return node_id

    def disconnect(self, node_id: int) -> None:
        """Let a node vanish."""
        del self.nodes[node_id]

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        """Return a run that says what of the run config its user has set: :attr:`overrides`."""
        run = Run.create_empty(RUN_ID)
        run.override_config = self.overrides
        return run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        accepted = []
        for message in messages:
            self.sent.append(message)
            message_id = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = message_id
            # As Flower: what can't be delivered has no id in the answer.
            if message.metadata.dst_node_id in self.nodes:
                accepted.append(message_id)
                self._deliver(_copy(message))
        return accepted

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        now = self._clock.now()
        due = [i for i in message_ids if i in self._replies and self._replies[i][0] <= now]
        # Never in the order of the names.
        return [self._replies.pop(i)[1] for i in sorted(due, reverse=True)]

    def _deliver(self, instruction: Message) -> None:
        index, _ = self.nodes[instruction.metadata.dst_node_id]
        arrives: Message | Late | None = _copy(self._answer(instruction))
        for fault in self.faults:
            if fault.hits(index, instruction) and isinstance(arrives, Message):
                arrives = fault.change(arrives)
        if arrives is None:
            return
        seconds, reply = (0.0, arrives)
        if isinstance(arrives, Late):
            seconds, reply = arrives.seconds, arrives.reply
        at = self._clock.now() + seconds
        self._replies[instruction.metadata.message_id] = (at, reply)

    def _answer(self, instruction: Message) -> Message:
        node_id = instruction.metadata.dst_node_id
        context = Context(
            run_id=RUN_ID,
            node_id=node_id,
            node_config=dict(self.nodes[node_id][1]),
            state=RecordDict(),
            run_config=dict(self.run_config),
        )
        try:
            return self.client_app(instruction, context)
        except Exception as error:  # as Flower: any exception becomes an error reply
            reason = f"{type(error).__name__}: {error}"
            return Message(
                Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=instruction
            )


def _copy(message: Message) -> Message:
    metadata = copy.deepcopy(message.metadata)
    if message.has_error():
        return Message(error=message.error, metadata=metadata)  # type: ignore[call-overload]
    content = copy.deepcopy(message.content)
    return Message(content=content, metadata=metadata)  # type: ignore[call-overload]


@contextmanager
def task_identity() -> Iterator[None]:
    """Make ``Message(...)`` possible outside a Flower task."""
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 3, RUN_ID, SERVER_NODE
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def simulated(num_clients: int) -> list[dict[str, Any]]:
    """Return the node configs that Flower's simulation gives its nodes."""
    return [{"partition-id": index, "num-partitions": num_clients} for index in range(num_clients)]


def run_in_process(
    settings_overrides: Mapping[str, Any],
    num_clients: int,
    tmp_path: Path,
    *,
    faults: Iterable[Fault] = (),
    clock: Clock | None = None,
    client_app: Callable[[Message, Context], Message] | None = None,
) -> Path:
    """Run both apps and return the experiment's folder.

    Parameters
    ----------
    settings_overrides : Mapping
        On the defaults of pyproject.toml, with ``server.min-clients`` all clients.
    num_clients : int
    tmp_path : Path
        Results and state of the clients lie below ``tmp_path / "moonflower"``.
    faults : Iterable[Fault]
    clock : Clock, optional
        A fake one where a fault makes the server wait.
    client_app : callable, optional
        In place of Moonflower's.
    """
    from client_app.app import app
    from server_app.app import serve

    run_config = make_run_config(**{"server.min-clients": num_clients, **settings_overrides})
    context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), run_config)
    home = {"MOONFLOWER_HOME": str(tmp_path / "moonflower")}
    with task_identity(), mock.patch.dict(os.environ, home):
        grid = InProcessGrid(client_app or app, simulated(num_clients), run_config, faults, clock)
        return serve(grid, context, clock or Clock())

"""A double of the SuperLink as flwr 1.42's HttpGrid sees it: replies come in parts.

Flower's own unpacking runs on what it hands over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.app import Message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
)
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from google.protobuf.message import Message as Proto

from common import records
from server_app.exchange.clock import Clock
from server_app.exchange.parts import PartsGrid
from tests.in_process.grid import SERVER_NODE, InProcessGrid
from tests.in_process.uploads import Attack, Upload, upload_of


@dataclass(frozen=True)
class Hostile:
    """What a node uploads instead of its honest replies, in some rounds, to some messages."""

    node: int
    attack: Attack
    rounds: Collection[int] | None = None
    message_type: str = records.TRAIN


@dataclass
class PartsDouble(InProcessGrid):
    """Has the parts of replies instead of the replies."""

    client_app: Any
    configs: list[dict[str, Any]]
    hostile: tuple[Hostile, ...] = ()
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        super().__init__(self.client_app, self.configs, {}, (), self.clock)
        self.node = Node(node_id=SERVER_NODE)
        self._runtime_client = self
        self._client = SimpleNamespace(event_hooks={"request": [], "response": []})
        self.store: dict[str, tuple[float, bytes]] = {}
        self.waiting: dict[str, list[ProtoMessage]] = {}
        self.unasked: list[ProtoMessage] = []
        self.trouble: dict[str, Callable[[], None]] = {}
        self.announced: set[str] = set()
        self.confirmed: set[str] = set()
        self.longest = 0

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise AssertionError("Flower's own way of pulling is not safe")

    def _deliver(self, instruction: Message) -> None:
        super()._deliver(instruction)
        key = instruction.metadata.message_id
        if key not in self._replies:
            return
        _, reply = self._replies.pop(key)
        index, _ = self.nodes[instruction.metadata.dst_node_id]
        upload = self._attack(index, instruction)(reply)
        self.put(upload)
        self.announce(key, upload, reply)

    def _attack(self, index: int, instruction: Message) -> Attack:
        config = instruction.content.config_records.get(records.CONFIG, {})
        for each in self.hostile:
            hit = each.rounds is None or config.get(records.ROUND) in each.rounds
            if (
                each.node == index
                and each.message_type == instruction.metadata.message_type
                and hit
            ):
                return each.attack
        return upload_of

    def put(self, upload: Upload) -> None:
        """Store an upload's parts, of which some come later or never."""
        now = self._clock.now()
        for number, (key, content) in enumerate(upload.parts.items()):
            at = float("inf") if key in upload.never else now + number * upload.every
            # Two nodes may send a part of equal content.
            self.store[key] = (min(at, self.store.get(key, (at, b""))[0]), content)

    def announce(self, asked: str, upload: Upload, reply: Message) -> None:
        """Note that a reply is there, as a SuperLink does before it has any part of it."""
        proto = message_to_proto(reply)
        proto.ClearField("content")
        proto.metadata.message_id, proto.metadata.reply_to_message_id = upload.root, asked
        self.announced.add(upload.root)
        self.waiting.setdefault(asked, []).append(proto)

    # What HttpGrid's client does

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:  # noqa: N802
        (asked,) = request.message_ids
        replies = self.waiting.pop(asked, [])
        if replies and asked in self.trouble:
            self.trouble[asked]()
        response = PullAppMessagesResponse(messages_list=[*replies, *self.unasked])
        self.unasked.clear()
        return self._answered(response)

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        at, content = self.store.get(request.object_id, (None, b""))
        there = at is not None and at <= self._clock.now()
        return self._answered(
            PullObjectResponse(
                object_found=at is not None,
                object_available=there,
                object_content=content if there else b"",
            )
        )

    def ConfirmMessageReceived(  # noqa: N802
        self, request: ConfirmMessageReceivedRequest
    ) -> ConfirmMessageReceivedResponse:
        self.confirmed.add(request.message_object_id)
        return ConfirmMessageReceivedResponse()

    def _answered(self, response: Any) -> Any:
        assert isinstance(response, Proto)
        length = response.ByteSize()
        for hook in self._client.event_hooks["response"]:
            hook(httpx.Response(200, headers={"content-length": str(length)}))
        self.longest = max(self.longest, length)
        return response


def parts_grid(double: PartsDouble) -> PartsGrid:
    """Return the grid of a ServerApp that talks to the double."""
    return PartsGrid(double)  # type: ignore[arg-type]

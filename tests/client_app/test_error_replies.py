"""Nothing that goes wrong on a node leaves the server without an answer that can be sent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_to_proto

from client_app.app import app as client_app
from client_app.error_replies import always_answered
from common import records
from tests.in_process.grid import task_identity

NAME = os.fsdecode(b"train/cat/\xfc.png")
"""As Python holds the name of a file on a share in Latin-1."""


def ask(app: ClientApp, message_type: str, **node_config: Any) -> Message:
    """Return the app's answer, which Flower can send."""
    with task_identity():
        message = Message(RecordDict(), 5, message_type)
        context = Context(1, 5, node_config, RecordDict(), {})
        reply = app(message, context)
        message_to_proto(reply)
    return reply


def answering(handler: Callable[[Message, Context], Message]) -> ClientApp:
    """Return an app that does the same with every message."""
    app = ClientApp(mods=[always_answered])
    for register in (app.query, app.train, app.evaluate):
        register()(handler)
    return app


@pytest.mark.parametrize("message_type", [records.QUERY, records.TRAIN, records.EVALUATE])
@pytest.mark.parametrize("kind", [OSError, MemoryError, RuntimeError])
def test_what_is_raised_becomes_an_error_reply_that_can_be_sent(
    message_type: str, kind: type[Exception]
) -> None:
    def failing(message: Message, context: Context) -> Message:
        raise kind(f"{NAME}\nis gone")

    reply = ask(answering(failing), message_type)
    assert reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    assert reply.error.reason is not None
    assert reply.error.reason.startswith(f"{kind.__name__}: ")
    assert r"train/cat/\xfc.png" in reply.error.reason


def test_a_text_in_a_reply_is_made_safe() -> None:
    def describing(message: Message, context: Context) -> Message:
        record = ConfigRecord({"error": f"{NAME} is\n\x1b[2Jno image", "number": 3})
        return Message(RecordDict({"client": record}), reply_to=message)

    reply = ask(answering(describing), records.QUERY)
    found = reply.content.config_records["client"]
    assert dict(found) == {"error": r"train/cat/\xfc.png is \x1b[2Jno image", "number": 3}


def test_moonflower_s_own_app_answers_a_message_that_it_can_t_use() -> None:
    reply = ask(client_app, records.TRAIN)
    assert reply.error.reason.startswith("SettingsError: the settings have")  # type: ignore[union-attr]

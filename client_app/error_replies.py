"""Whatever goes wrong while a node makes a reply becomes a reply.

flwr 1.42 makes an error reply of an exception too, but of its text as it is. Where that can't be
sent (a file name that is not UTF-8 in it), nothing is: the server waits, and the process that
should have ended hangs, so that the SuperNode takes no further message though it counts as online.
"""

from __future__ import annotations

import logging

from flwr.app import ConfigRecord, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode

from common.logs import NAME
from common.text import safe_text

log = logging.getLogger(NAME)

LONGEST_PROBLEM = 4000
"""Characters: a client may have a list of problems to tell."""


def always_answered(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Return the app's reply with every text in it safe, or an error reply of what it raised.

    A mod of Flower. The traceback is in the node's own log.
    """
    try:
        reply = call_next(message, context)
    except Exception as error:
        log.exception(
            "no answer but an error to a message of type %s", message.metadata.message_type
        )
        reason = safe_text(f"{type(error).__name__}: {error}", LONGEST_PROBLEM)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    if reply.has_content():
        for record in reply.content.config_records.values():
            _make_safe(record)
    return reply


def _make_safe(record: ConfigRecord) -> None:
    for key, value in list(record.items()):
        if isinstance(value, str):
            record[key] = safe_text(value, LONGEST_PROBLEM)

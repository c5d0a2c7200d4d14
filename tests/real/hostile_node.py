"""A node that trains honestly and then uploads something else.

``python -m tests.real.hostile_node ADDRESS STATE INDEX CLIENTS PLAN``: PLAN names what it uploads
in rounds 1, 2, ... (:mod:`tests.in_process.uploads`), as ``array_bomb,honest,half``.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from functools import partial

from flwr.app import Context, Message, RecordDict
from flwr.app.message import make_message
from flwr.common.config import get_fused_config_from_fab
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
)
from flwr.supernode.fleet_http_connection import http_request_response

from client_app.app import app
from common import records
from tests.in_process.uploads import ATTACKS, Upload, upload_of


def main(address: str, state: str, index: str, clients: str, plan: str) -> None:
    """Answer messages until somebody ends this process."""
    node_config = {"partition-id": int(index), "num-partitions": int(clients), "state-dir": state}
    names = plan.split(",")
    with http_request_response(address, insecure=True) as calls:
        node_id, receive, send, get_run, get_fab, pull, push, confirm = calls
        while True:
            came = receive()
            if came is None:
                time.sleep(0.5)
                continue
            announced, tree = came
            run_id, key = announced.metadata.run_id, announced.metadata.message_id
            ids = [each.object_id for each in iterate_object_tree(tree)]
            parts = pull_objects(ids, partial(pull, run_id), initial_backoff=0.2)
            confirm(run_id, key)
            message = inflate_object_from_contents(key, parts)
            assert isinstance(message, Message)
            message.metadata.__dict__["_message_id"] = key
            run = get_run(run_id)
            config = get_fused_config_from_fab(get_fab(run.fab_hash, run_id).content, run)
            context = Context(run_id, node_id, node_config, RecordDict(), config)
            reply = app(message, context)
            # What the SuperLink is told is honest: it would not take anything else.
            said = make_message(metadata=copy.deepcopy(reply.metadata), content=RecordDict())
            upload = _attack(names, message)(reply)
            said.metadata.__dict__["_message_id"] = upload.root
            wanted, session = send(said, upload.tree(), 1.0)
            for part in upload.parts:
                if part in wanted and part not in upload.never:
                    push(run_id, session, part, upload.parts[part])
            print("uploaded", len(upload.parts), "parts", flush=True)


def _attack(names: list[str], message: Message) -> Callable[[Message], Upload]:
    config = message.content.config_records.get(records.CONFIG, {})
    number = int(config.get(records.ROUND, 0))  # type: ignore[arg-type]
    if message.metadata.message_type != records.TRAIN or number > len(names):
        return upload_of
    return ATTACKS.get(names[number - 1], upload_of)


if __name__ == "__main__":
    main(*sys.argv[1:])

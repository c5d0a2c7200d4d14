"""A ``flower-supernode`` in the state into which flwr 1.42 gets when a run ends in a bad moment.

It does not wait for the reply to the first message, so that one reply is always left over. Used
before the command: ``python -m tests.real.one_behind flower-supernode --insecure ...``.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import flwr.supernode.start_client_internal as flower
from flwr.supernode.cli import flower_supernode

_honest = flower._push_messages
_calls = itertools.count()


def _push_all_but_the_first(*args: Any, **kwargs: Any) -> None:
    if next(_calls):
        _honest(*args, **kwargs)


if __name__ == "__main__":
    flower._push_messages = _push_all_but_the_first
    sys.argv = sys.argv[1:]
    flower_supernode()

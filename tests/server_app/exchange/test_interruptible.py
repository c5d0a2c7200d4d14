"""A Grid that does not keep signals waiting."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterable

import pytest
from flwr.app import Message, RecordDict

from common import records
from server_app.exchange.interruptible import InterruptibleGrid
from tests.in_process.grid import FakeClock, InProcessGrid
from tests.server_app.toy import grid_of, named
from tests.settings import ROOT


def test_an_interruptible_grid_does_what_the_grid_does(fake: FakeClock) -> None:
    grid = grid_of(fake, named(*"abcd"))
    view = InterruptibleGrid(grid)
    assert sorted(view.get_node_ids()) == sorted(grid.get_node_ids())
    node = next(iter(view.get_node_ids()))
    (message_id,) = view.push_messages([Message(RecordDict(), node, records.QUERY)])
    (reply,) = view.pull_messages([message_id])
    assert reply.metadata.src_node_id == node


def test_an_error_of_the_grid_is_raised_where_it_was_asked(fake: FakeClock) -> None:
    class Broken(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            raise ConnectionError(f"no {list(message_ids)}")

    view = InterruptibleGrid(grid_of(fake, named("a"), cls=Broken))
    with pytest.raises(ConnectionError, match=r"no \['first'\]"):
        view.pull_messages(["first"])


def test_a_signal_raised_in_a_thread_ends_a_process_that_waits_for_a_transfer() -> None:
    # As in flwr 1.42: a thread sees that the SuperLink is gone and raises SIGINT, while the main
    # thread waits, without a limit, for an object that will never come.
    program = """
        import signal, sys, threading
        from server_app.exchange.interruptible import InterruptibleGrid

        waits = threading.Event()

        class Stuck:
            def pull_messages(self, message_ids):
                print("waits", flush=True)
                waits.set()
                threading.Event().wait()

        def superlink_is_gone():
            waits.wait()
            signal.raise_signal(signal.SIGINT)

        signal.signal(signal.SIGINT, lambda number, frame: sys.exit(7))
        threading.Thread(target=superlink_is_gone, daemon=True).start()
        InterruptibleGrid(Stuck()).pull_messages(["1"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("waits\n", 7), done.stderr

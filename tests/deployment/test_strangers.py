"""Without a key nobody fills the server's memory or the fence's connections."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.deployment.sites import SETTINGS
from tests.real.deployment import Deployment
from tests.real.measurements import memory_mb
from tests.real.processes import SLOW
from tests.settings import ROOT

GIGABYTE = 1_000_000_000
CONNECTIONS = 200
PUSH = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"


def _trusting(deployment: Deployment) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(deployment.server / "ca.crt"))


def _connect(deployment: Deployment, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("localhost", deployment.port), SLOW)
    return context.wrap_socket(plain, server_hostname="localhost")


def _pour(deployment: Deployment, most: int) -> int:
    """Send a body of so many bytes without a key, and return how many were taken."""
    part = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    taken = 0
    with _connect(deployment, _trusting(deployment)) as line, suppress(OSError):
        line.sendall(PUSH + b"\r\n")
        while taken < most:
            line.sendall(part)
            taken += 0x100000
    return taken


def test_a_gigabyte_without_a_key_does_not_reach_the_superlink(
    deployment: Deployment, record_property: Callable[[str, object], None]
) -> None:
    superlink = deployment.superlink.pids("flower-superlink")
    before = memory_mb(superlink)
    record_property("bytes taken by the fence", _pour(deployment, GIGABYTE))
    after = memory_mb(superlink)
    record_property("SuperLink, MB before and after", (before, after))
    # The 1 GB took it from 155 MB to 2.5 GB before.
    assert after - before < 100.0
    assert memory_mb(deployment.fence.pids()) < 200.0


@contextmanager
def _dripping(deployment: Deployment) -> Iterator[list[int]]:
    """Hold connections open and send a byte on each now and then; a new one when one was closed.

    Yields a list whose only number counts those that were opened.
    """
    ended, opened, context = threading.Event(), [0], _trusting(deployment)

    def drip(number: int) -> None:
        while not ended.is_set():
            with suppress(OSError), _connect(deployment, context) as line:
                opened[0] += 1
                # Half of them never come to the end of the head, the others to that of the body.
                line.sendall(PUSH if number % 2 else PUSH + b"\r\n")
                while not ended.wait(1.0):
                    line.sendall(b"a" if number % 2 else b"1\r\nx\r\n")
            # Handshakes cost this machine more than they cost a server that has one to itself.
            ended.wait(2.0)

    threads = [threading.Thread(target=drip, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    try:
        yield opened
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_run_goes_on_while_200_connections_of_strangers_drip(
    deployment: Deployment, record_property: Callable[[str, object], None]
) -> None:
    activated = deployment.activated()
    with _dripping(deployment) as opened:
        run = deployment.submit(ROOT, {**SETTINGS, "num-rounds": 1, "experiment": "dripping"})
        record_property("seconds", run.wait())
        record_property("connections opened", opened[0])
    assert [sorted(line["participants"]) for line in run.lines()] == [sorted(deployment.data)]
    assert deployment.activated() == activated, "nobody was thrown out"

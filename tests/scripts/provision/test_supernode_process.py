"""Flower's own retries, with the client that shows it faults of the line as it can bear them."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from flwr.supercore.retry import make_simple_http_retry_invoker

from scripts.moonflower.deployment.supernode import judge
from scripts.moonflower.deployment.supernode_process import GAVE_UP, PATIENCE, Faults, lasting
from scripts.moonflower.deployment.supervision import Verdict

PULL = "https://server/v1/fleet/pull-messages"
HEARTBEAT = "https://server/v1/fleet/send-node-heartbeat"
BROKEN = "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)"

Reply = int | Callable[[httpx.Request], httpx.Response]


class Server:
    """Answers with what it is given, one after the other; then with 200."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.now = 0.0
        self.beats = self.requests = 0
        faults = Faults(lambda: self.now)
        made = lasting(faults, self._asks, self._accepted)
        self.client = made(transport=httpx.MockTransport(self._answer))

    def _asks(self) -> None:
        self.requests += 1

    def _accepted(self) -> None:
        self.beats += 1

    def _answer(self, request: httpx.Request) -> httpx.Response:
        reply = self.replies.pop(0) if self.replies else 200
        return httpx.Response(reply) if isinstance(reply, int) else reply(request)

    def ask(self, url: str = PULL) -> int:
        """Ask as Flower's main loop does, with its retries; return the status."""
        invoker = make_simple_http_retry_invoker()
        invoker.wait_function = self._pass

        def once() -> httpx.Response:
            reply = self.client.post(url)
            reply.raise_for_status()
            return reply

        reply: httpx.Response = invoker.invoke(once)
        return reply.status_code

    def _pass(self, seconds: float) -> None:
        self.now += seconds


def broken(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(BROKEN, request=request)


def refused_by_proxy(request: httpx.Request) -> httpx.Response:
    raise httpx.ProxyError("503 Service Unavailable", request=request)


def not_trusted(request: httpx.Request) -> httpx.Response:
    cause = ssl.SSLCertVerificationError("certificate verify failed")
    raise httpx.ConnectError(str(cause), request=request) from cause


@pytest.mark.parametrize("fault", [broken, refused_by_proxy, 500, 429, 503, 501, 408])
def test_flower_waits_out_a_fault_of_the_line(fault: Reply) -> None:
    assert Server(fault, fault, fault).ask() == 200


@pytest.mark.parametrize("fault", [500, broken])
def test_a_fault_that_stays_is_shown_to_flower_as_it_is(fault: Reply) -> None:
    server = Server(*[fault] * 1000)
    with pytest.raises((httpx.HTTPStatusError, httpx.ConnectError)) as raised:
        server.ask()
    assert server.now > PATIENCE
    assert "500" in str(raised.value) or BROKEN in str(raised.value)


@pytest.mark.parametrize("status", [400, 404, 412])
def test_an_answer_to_what_was_asked_is_passed_on_at_once(status: int) -> None:
    server = Server(status)
    with pytest.raises(httpx.HTTPStatusError, match=str(status)):
        server.ask()
    assert server.now == 0


def test_a_certificate_that_is_not_trusted_is_passed_on_at_once() -> None:
    server = Server(not_trusted)
    with pytest.raises(httpx.ConnectError, match="certificate"):
        server.ask()


def test_each_kind_of_request_has_patience_of_its_own_that_begins_anew_after_an_answer() -> None:
    server = Server(500, 200)
    assert server.ask() == 200
    server.now += 10 * PATIENCE
    server.replies = [500]
    assert server.ask() == 200


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500])
def test_heartbeats_wait_out_every_status_but_that_of_a_key_that_is_not_accepted(
    status: int,
) -> None:
    assert Server(status, status).ask(HEARTBEAT) == 200
    assert Server(401).client.post(HEARTBEAT).status_code == 401


def test_only_heartbeats_that_were_accepted_count() -> None:
    server = Server(500, 404, 200, 200)
    for _ in range(3):
        server.client.post(HEARTBEAT)
    assert (server.beats, server.requests) == (1, 0)
    server.client.post(PULL)
    assert (server.beats, server.requests) == (1, 1)


def test_what_the_main_loop_asks_for_is_a_sign_of_life_whatever_the_answer() -> None:
    server = Server(broken, 500, 200)
    assert server.ask() == 200
    assert (server.beats, server.requests) == (0, 3)


# What flower-supernode is for main(), in place of Flower's own.
_PROGRAM = """
import os, sys, threading, time
from importlib.metadata import EntryPoint
from unittest import mock
from scripts.moonflower.deployment import supernode_process
sys.modules["fake"] = sys.modules["__main__"]
def stays():
    threading.Thread(target=time.sleep, args=(600,)).start()  # as Flower's own HTTP interface
{body}
entry = EntryPoint("flower-supernode", "fake:program", "console_scripts")
with mock.patch.object(supernode_process, "entry_points", return_value=(entry,)):
    supernode_process.main()
"""


def run(body: str, home: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(body=textwrap.dedent(body))],
        env={**os.environ, "FLWR_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_main_loop_that_returns_ends_the_process_although_a_thread_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "heartbeat").touch()
    code, printed = run("program = stays", tmp_path)
    assert code == 1
    assert GAVE_UP in printed
    assert not (tmp_path / "heartbeat").exists()
    ending = judge(code, printed)
    assert ending.verdict is Verdict.RESTART
    assert "no longer online: its main loop ended" in ending.reason


def test_a_thread_that_dies_ends_the_process_by_the_signal_after_which_flower_says_goodbye(
    tmp_path: Path,
) -> None:
    body = """
    def dies():
        raise RuntimeError("Heartbeat failed\\nunexpectedly")
    def program():
        thread = threading.Thread(target=dies)
        thread.start()
        time.sleep(600)
    """
    code, printed = run(body, tmp_path)
    assert code == -signal.SIGTERM
    assert "Traceback" in printed
    assert (
        "no longer online: RuntimeError: Heartbeat failed unexpectedly" in judge(0, printed).reason
    )


def test_what_flower_prints_at_its_own_end_is_judged_as_before(tmp_path: Path) -> None:
    code, printed = run("def program(): sys.exit('Exit Code: 302\\\\nbad key')", tmp_path)
    assert (code, judge(code, printed).verdict) == (1, Verdict.STOP)
    assert GAVE_UP not in printed

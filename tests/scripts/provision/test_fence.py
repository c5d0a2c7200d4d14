"""What nginx lets through with the bundle's configuration; a table stands in for the SuperLink."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.deployment.authority import new_node_key
from scripts.moonflower.deployment.fence import find_nginx
from scripts.moonflower.deployment.fence_keys import (
    KNOWN_KEYS,
    known_keys,
    reload_fence,
    renew_known_keys,
)
from scripts.moonflower.doctor.bundle import Bundle
from scripts.moonflower.doctor.findings import Finding
from scripts.moonflower.doctor.ports import check_ports
from tests.real.processes import SLOW, free_port, wait_until
from tests.scripts.provision.conftest import Provision

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not find_nginx() or sys.platform != "linux",
        reason="nginx-light is not installed, or no Linux",
    ),
]

MEGABYTE = 1_000_000
DRIPPING = 200


@dataclass
class Behind:
    """What reached the server behind the fence."""

    asked: list[str] = field(default_factory=list)
    received: int = 0


@dataclass
class Door:
    """A fence, started, before such a server."""

    federation: Path
    port: int
    run: Path
    behind: Behind

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.federation / "server" / "ca.crt"))

    def key_of(self, name: str) -> str:
        """Return what a SuperNode with a node's bundle shows."""
        return header(self.federation / "nodes" / name / "node.key")

    def ask(self, path: str, key: str = "", body: bytes = b"", method: str = "POST") -> int:
        """Return the status of an answer."""
        return self.answer(path, key, body, method)[0]

    def answer(
        self, path: str, key: str = "", body: bytes = b"", method: str = "POST"
    ) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        line = http.client.HTTPSConnection(
            "localhost", self.port, timeout=SLOW, context=self.trusting
        )
        try:
            line.request(method, path, body, {FLEET_HTTP_PUBLIC_KEY_HEADER: key} if key else {})
            reply = line.getresponse()
            return reply.status, reply.read()
        finally:
            line.close()

    def connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("localhost", self.port), SLOW)
        return self.trusting.wrap_socket(plain, server_hostname="localhost")


def header(key: Path) -> str:
    """Return the header that Flower makes of a private key in OpenSSH's format."""
    public = load_ssh_private_key(key.read_bytes(), None).public_key()
    return b64encode(public_key_to_bytes(public)).decode()  # type: ignore[arg-type]


@contextmanager
def server_behind(bundle: Path, port: int) -> Iterator[Behind]:
    behind = Behind()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            behind.asked.append(self.path)
            if self.headers.get("Transfer-Encoding"):
                self.rfile.read()  # until the fence hangs up
            left = int(self.headers.get("Content-Length") or 0)
            while left and (part := self.rfile.read(min(left, 65536))):
                left -= len(part)
                behind.received += len(part)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 (the library's name)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """The fence may hang up."""

    server = Quiet(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle / "server.crt", bundle / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield behind
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def door(folder: Path, provision: Provision, tmp_path: Path) -> Iterator[Door]:
    port, inside = free_port(), free_port()
    ports = ["--port", str(port), "--superlink-port", str(inside), "--state", str(tmp_path / "s")]
    made = provision("--server", "localhost", "--node", "clinic-a", "--node", "clinic-b", *ports)
    assert made.exit_code == 0, made.output
    run = tmp_path / "fence"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with server_behind(folder / "server", inside) as behind:
        process = subprocess.Popen(
            ["moonflower", "fence", "--bundle", folder / "server"],
            env={**os.environ, "PATH": path, "MOONFLOWER_FENCE_DIR": str(run)},
        )
        try:
            pid = run / "nginx.pid"
            wait_until(lambda: process.poll() or (pid.exists() and pid.read_text()), "it", SLOW)
            assert process.poll() is None
            yield Door(folder, port, run, behind)
        finally:
            process.terminate()
            process.wait()


def test_a_message_with_a_nodes_key_goes_through(door: Door) -> None:
    assert door.ask("/v1/fleet/pull-messages", door.key_of("clinic-a"), b"question") == 200
    assert door.behind.asked == ["/v1/fleet/pull-messages"]
    assert door.behind.received == len(b"question")


@pytest.mark.parametrize("kind", ["none", "of another federation", "nonsense", "of 8 kB"])
def test_without_a_nodes_key_nothing_reaches_the_superlink(
    door: Door, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "other.key").write_bytes(new_node_key())
    keys = {
        "none": "",
        "of another federation": header(tmp_path / "other.key"),
        "nonsense": "clinic-a",
        "of 8 kB": "A" * 8000,
    }
    for name in ("pull-messages", "push-object", "push-messages", "send-node-heartbeat", "get-run"):
        assert door.ask(f"/v1/fleet/{name}", keys[kind], b"x" * 1000) == 401
    assert door.behind.asked == []


def test_a_node_whose_key_is_unknown_hears_flowers_code_for_it(door: Door) -> None:
    status, body = door.answer("/v1/fleet/activate-node", "", b"x")
    assert (status, json.loads(body)["code"]) == (412, 2004)
    assert "moonflower nodes sync" in json.loads(body)["detail"]
    assert door.behind.asked == []


@pytest.mark.parametrize(("size", "status"), [(6, 200), (15, 200), (17, 413), (40, 413)])
def test_a_part_of_a_reply_has_room_for_three_of_flowers_largest(
    door: Door, size: int, status: int
) -> None:
    key = door.key_of("clinic-a")
    assert door.ask("/v1/fleet/push-object", key, b"x" * (size << 20)) == status
    assert door.behind.received == (size << 20 if status == 200 else 0)


def test_other_messages_are_small(door: Door) -> None:
    key = door.key_of("clinic-a")
    assert door.ask("/v1/fleet/pull-messages", key, b"x" * 60_000) == 200
    assert door.ask("/v1/fleet/pull-messages", key, b"x" * 70_000) == 413
    assert door.ask("/v1/fleet/push-messages", key, b"x" * 4 * MEGABYTE) == 200


def test_the_health_check_has_no_body(door: Door) -> None:
    assert door.ask("/health", method="GET") == 200
    assert door.ask("/health", body=b"x" * 1000, method="GET") == 413
    assert door.behind.received == 0


def drip(line: ssl.SSLSocket, path: str, key: str = "") -> None:
    """Begin to send a body of a gigabyte."""
    shown = f"{FLEET_HTTP_PUBLIC_KEY_HEADER}: {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{shown}Transfer-Encoding: chunked\r\n\r\n"
    line.sendall(head.encode() + b"1\r\nx\r\n")


def has_ended(line: ssl.SSLSocket) -> bool:
    """Send another byte of the body, and return whether nobody takes it any more."""
    line.settimeout(0.5)
    try:
        line.sendall(b"1\r\nx\r\n")
        return line.recv(4096) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_body_that_drips_gets_an_answer_and_the_connection_ends(door: Door) -> None:
    with door.connect() as line:
        drip(line, "/v1/fleet/push-object")
        assert line.recv(4096).startswith(b"HTTP/1.1 401 ")
        wait_until(lambda: has_ended(line), "the end of the connection", SLOW)
    assert door.behind.asked == []


def test_nodes_get_through_while_others_drip(door: Door) -> None:
    with ExitStack() as held:
        for number in range(DRIPPING):
            line = held.enter_context(door.connect())
            if number % 2:
                drip(line, "/v1/fleet/push-object")
            else:
                line.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: loc")
        for name in ("clinic-a", "clinic-b"):
            key = door.key_of(name)
            assert door.ask("/v1/fleet/push-object", key, b"x" * MEGABYTE) == 200
    assert door.behind.asked == ["/v1/fleet/push-object"] * 2


def test_one_node_does_not_take_the_connections_of_the_others(door: Door) -> None:
    with ExitStack() as held:
        answers = []
        for _ in range(40):
            line = held.enter_context(door.connect())
            drip(line, "/v1/fleet/push-object", door.key_of("clinic-a"))
            line.settimeout(0.2)
            try:
                answers.append(line.recv(12))
            except TimeoutError:
                answers.append(b"")
        assert answers == [b""] * 16 + [b"HTTP/1.1 503"] * 24
        assert door.ask("/v1/fleet/push-object", door.key_of("clinic-b"), b"x" * 10) == 200


def test_a_running_fence_is_told_of_new_and_replaced_keys(door: Door, provision: Provision) -> None:
    old = door.key_of("clinic-a")
    # As --rotate does, which would tell the server behind the fence as well.
    (door.federation / "nodes" / "clinic-a" / "node.key").write_bytes(new_node_key())
    assert provision("--node", "clinic-c").exit_code == 0
    new = [door.key_of(name) for name in ("clinic-a", "clinic-c")]
    path = "/v1/fleet/pull-messages"
    assert [door.ask(path, key) for key in [old, *new]] == [200, 401, 401]
    assert reload_fence(door.run)
    wait_until(lambda: door.ask(path, old) == 401, "the old key is refused", SLOW)
    assert [door.ask(path, key) for key in new] == [200, 200]


def test_the_doctor_tells_this_federations_fence_from_anothers(door: Door, tmp_path: Path) -> None:
    arguments = ["--server", "localhost", "--port", str(door.port)]
    other = tmp_path / "other"
    made = CliRunner().invoke(app, ["provision", "--output", str(other), *arguments])
    assert made.exit_code == 0, made.output

    def found(federation: Path) -> Finding:
        bundle = Bundle.open(federation / "server", "server")
        return next(each for each in check_ports(bundle) if each.check == "port of the fence")

    assert found(door.federation).status == "ok"
    assert found(other).status == "failed"
    assert found(other).found.endswith(f"started with the bundle {door.federation / 'server'}")


def test_there_may_be_no_fence_to_tell(tmp_path: Path) -> None:
    assert reload_fence(tmp_path) is False
    (tmp_path / "nginx.pid").write_text(str(os.getpid()))
    assert reload_fence(tmp_path) is False


def test_keys_that_a_person_took_out_or_put_in_are_noticed_at_the_start(made: Path) -> None:
    said: list[str] = []
    keys, revoked = made / "server" / "nodes", made / "server" / "revoked"
    before = (keys / KNOWN_KEYS).read_text()
    (keys / "clinic-a.pub").unlink()
    renew_known_keys(keys, revoked, said.append)
    shutil.copy(made / "nodes" / "clinic-a" / "node.pub", keys / "clinic-a.pub")
    assert "clinic-a" not in (keys / KNOWN_KEYS).read_text()
    renew_known_keys(keys, revoked, said.append)
    assert (keys / KNOWN_KEYS).read_text() == before
    assert said == []


def test_a_key_that_was_revoked_is_not_let_through_though_it_lies_there(made: Path) -> None:
    keys, revoked = made / "server" / "nodes", made / "server" / "revoked"
    revoked.mkdir()
    shutil.copy(keys / "clinic-a.pub", revoked / "clinic-a-1.pub")
    text = known_keys(keys, revoked).decode()
    assert '"clinic-b";' in text
    assert "clinic-a" not in text

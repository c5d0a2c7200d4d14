"""What a stranger at the published port can do: nothing."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts.moonflower.deployment.authority import Authority, certificate_pem, private_pem
from tests.deployment.tricks import answers, ask, request
from tests.real.deployment import Deployment


@pytest.fixture
def trusting(deployment: Deployment) -> ssl.SSLContext:
    """Return what a node trusts."""
    return ssl.create_default_context(cafile=str(deployment.bundle("clinic-a") / "ca.crt"))


def test_no_path_leads_to_the_other_interfaces(deployment: Deployment) -> None:
    found = answers("localhost", deployment.port, str(deployment.server / "ca.crt"))
    assert {what: status for what, status in found.items() if status not in (400, 403)} == {}


def test_health_is_published(deployment: Deployment, trusting: ssl.SSLContext) -> None:
    assert ask("localhost", deployment.port, trusting, request("GET", "/health")) == 200


def test_a_fleet_call_without_a_key_gets_no_further_than_the_fence(
    deployment: Deployment, trusting: ssl.SSLContext
) -> None:
    call = request("POST", "/v1/fleet/pull-messages")
    assert ask("localhost", deployment.port, trusting, call) == 401


def test_nobody_registers_a_node_from_outside(
    deployment: Deployment, trusting: ssl.SSLContext
) -> None:
    for name in ("register-node", "unregister-node"):
        call = request("POST", f"/v1/fleet/{name}")
        assert ask("localhost", deployment.port, trusting, call) == 412


def test_plain_text_gets_no_further_than_the_fence(deployment: Deployment) -> None:
    with socket.create_connection(("localhost", deployment.port), 60.0) as plain:
        plain.sendall(request("GET", "/health"))
        assert plain.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_tls_1_1_is_refused(deployment: Deployment, trusting: ssl.SSLContext) -> None:
    trusting.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    trusting.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("localhost", deployment.port), 60.0) as plain,
        pytest.raises(ssl.SSLError, match=r"ALERT_PROTOCOL_VERSION|alert protocol version"),
    ):
        trusting.wrap_socket(plain, server_hostname="localhost")


def test_the_superlink_listens_on_loopback_alone(deployment: Deployment) -> None:
    shown = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    local = [line.split()[3] for line in shown.splitlines()]
    port = f":{deployment.superlink_port}"
    assert [address for address in local if address.endswith(port)] == [f"127.0.0.1{port}"]


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[int]:
    """Serve TLS on a port of the loopback, with a certificate for it of another CA."""
    key, certificate = Authority.open(tmp_path, 10).sign_server(["localhost"], 5)
    (tmp_path / "server.key").write_bytes(private_pem(key))
    (tmp_path / "server.crt").write_bytes(certificate_pem(certificate))

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_the_fence_does_not_talk_to_another_server_in_the_superlinks_place(
    deployment: Deployment, trusting: ssl.SSLContext, impostor: int
) -> None:
    with deployment.second_fence("impostor", superlink_port=impostor) as port:
        assert ask("localhost", port, trusting, request("GET", "/health")) == 502

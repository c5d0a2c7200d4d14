"""What a node says about a server before it starts Flower; real sockets, real certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from scripts.moonflower.deployment import authority as authority_module
from scripts.moonflower.deployment.authority import Authority, certificate_pem, private_pem
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.probe import parse_address, probe
from scripts.moonflower.deployment.supervision import Verdict


@contextmanager
def _serving(folder: Path | None) -> Iterator[int]:
    """Serve on a port of 127.0.0.1: TLS with the certificate of a folder, or plain text."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                connection, _ = server.accept()
                if folder is None:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                else:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(folder / "server.crt", folder / "server.key")
                    connection = context.wrap_socket(connection, server_side=True)
                connection.close()
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]


def _server(folder: Path, host: str = "127.0.0.1", *, shift: timedelta = timedelta()) -> Path:
    """Make a CA and a server's certificate as if the time were another."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + shift

    made = Authority.open(folder, 3000)
    with (
        mock.patch.object(authority_module, "datetime", Shifted),
        mock.patch.object(authority_module, "LOCAL_HOSTS", ()),
    ):
        key, certificate = made.sign_server([host], 5)
    (folder / "server.key").write_bytes(private_pem(key))
    (folder / "server.crt").write_bytes(certificate_pem(certificate))
    return folder


def test_nothing_speaks_against_the_right_server(tmp_path: Path) -> None:
    server = _server(tmp_path)
    with _serving(server) as port:
        assert probe(f"127.0.0.1:{port}", server / "ca.crt") is None


@pytest.mark.parametrize(
    ("host", "shift", "words"),
    [
        ("127.0.0.1", timedelta(days=-30), "has expired"),
        ("127.0.0.1", timedelta(days=30), "not valid yet"),
        ("fl.example.org", timedelta(), "for other names or addresses"),
        ("127.0.0.2", timedelta(), "for other names or addresses"),
    ],
)
def test_a_certificate_that_does_not_fit_stops_the_node(
    tmp_path: Path, host: str, shift: timedelta, words: str
) -> None:
    server = _server(tmp_path, host, shift=shift)
    with _serving(server) as port:
        ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.STOP
    assert words in ending.reason


def test_a_certificate_of_another_ca_stops_the_node(tmp_path: Path) -> None:
    server = _server(tmp_path / "server")
    other = _server(tmp_path / "other")
    with _serving(server) as port:
        ending = probe(f"127.0.0.1:{port}", other / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.STOP
    assert "signed by another CA" in ending.reason


def test_a_server_without_tls_stops_the_node(tmp_path: Path) -> None:
    server = _server(tmp_path)
    with _serving(None) as port:
        ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.STOP
    assert "does not speak TLS" in ending.reason


def test_a_server_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    server = _server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.RESTART
    assert "can't be reached" in ending.reason


def test_a_name_that_nobody_knows_is_waited_for(tmp_path: Path) -> None:
    server = _server(tmp_path)
    ending = probe("nowhere.invalid:9443", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.RESTART


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("a.example:1", ("a.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("1.2.3.4:9", ("1.2.3.4", 9)),
    ],
)
def test_addresses_are_host_and_port(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:", "host:0", "host:70000", "https://a:b"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(DeploymentError, match="host:port"):
        parse_address(address)

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
from scripts.moonflower.deployment.first_message import parse_address
from scripts.moonflower.deployment.probe import probe
from scripts.moonflower.deployment.supervision import Verdict
from tests.scripts.doctor.bundles import tls_server
from tests.scripts.proxies import PROXY_VARIABLES, proxy


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
    with tls_server(server) as port:
        assert probe(f"127.0.0.1:{port}", server / "ca.crt") is None


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_fence_without_a_superlink_is_waited_for(tmp_path: Path, status: int) -> None:
    server = _server(tmp_path)
    with tls_server(server, status=status) as port:
        ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.RESTART
    assert f"answers {status}" in ending.reason


def test_a_connection_that_is_accepted_and_closed_is_tried_again(tmp_path: Path) -> None:
    server = _server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def accept_and_close() -> None:
            plain.accept()[0].close()

        thread = threading.Thread(target=accept_and_close)
        thread.start()
        ending = probe(f"127.0.0.1:{plain.getsockname()[1]}", server / "ca.crt")
        thread.join()
    assert ending is not None
    assert ending.verdict is Verdict.RESTART


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        # Of the server's clock: this machine's is behind, or ahead.
        (400, "s behind the server's"),
        (-60, "59 s ahead of the server's; a SuperLink lets in a node that is at most 5 s ahead"),
    ],
)
def test_a_clock_with_which_a_superlink_would_refuse_the_node_is_waited_for(
    tmp_path: Path, ahead: float, words: str
) -> None:
    server = _server(tmp_path)
    with tls_server(server, clock_ahead=ahead) as port:
        ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.RESTART
    # The header has no fractions of a second.
    assert words in ending.reason.replace("at least 60", "at least 59")


@pytest.mark.parametrize(
    ("days", "ahead", "words"),
    [
        # The certificate begins in 30 days, and the server's clock says that these are over.
        (30, timedelta(days=30), "not valid yet"),
        (-30, timedelta(days=-30), "has expired"),
        (-30, timedelta(), "and this machine's clock is right: on the server's side"),
    ],
)
def test_dates_that_a_clock_or_a_certificate_may_be_wrong_about_are_waited_for(
    tmp_path: Path, days: int, ahead: timedelta, words: str
) -> None:
    server = _server(tmp_path, shift=timedelta(days=days))
    with tls_server(server, clock_ahead=ahead.total_seconds()) as port:
        ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.RESTART, "clocks get set, and certificates renewed"
    assert words in ending.reason
    assert bool(ahead) == ("because this machine's clock is at least 259" in ending.reason)


@pytest.mark.parametrize("host", ["fl.example.org", "127.0.0.2"])
def test_a_certificate_for_another_host_stops_the_node(tmp_path: Path, host: str) -> None:
    server = _server(tmp_path, host)
    with _serving(server) as port:
        ending = probe(f"127.0.0.1:{port}", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.STOP
    assert "for other names or addresses" in ending.reason


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


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing of proxies."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def test_a_name_that_only_the_proxy_knows_is_reached_through_it(
    tmp_path: Path, no_proxies: pytest.MonkeyPatch
) -> None:
    server = _server(tmp_path, "fence.test")
    with tls_server(server) as port, proxy({"fence.test": port}) as way:
        no_proxies.setenv("HTTPS_PROXY", way.url)
        assert probe("fence.test:9443", server / "ca.crt") is None
    assert way.asked == ["CONNECT fence.test:9443"]


def test_a_proxy_that_refuses_is_named_without_its_password(
    tmp_path: Path, no_proxies: pytest.MonkeyPatch
) -> None:
    server = _server(tmp_path)
    with proxy({}) as way:
        no_proxies.setenv("HTTPS_PROXY", way.url.replace("//", "//user:secret@"))
        ending = probe("fence.test:9443", server / "ca.crt")
    assert ending is not None
    assert ending.verdict is Verdict.RESTART
    assert f"fence.test:9443 can't be reached through proxy 127.0.0.1:{way.server_port}" in (
        ending.reason
    )
    assert "503 unknown here" in ending.reason
    assert "secret" not in ending.reason


def test_neither_loopback_nor_what_no_proxy_names_goes_through_the_proxy(
    tmp_path: Path, no_proxies: pytest.MonkeyPatch
) -> None:
    server = _server(tmp_path, "localhost")
    with tls_server(server) as port, proxy({}) as way:
        no_proxies.setenv("HTTPS_PROXY", way.url)
        assert probe(f"localhost:{port}", server / "ca.crt") is None
        no_proxies.setenv("NO_PROXY", "fence.test")
        ending = probe(f"fence.test:{port}", server / "ca.crt")
    assert way.asked == []
    assert ending is not None
    assert "proxy" not in ending.reason


def test_a_proxy_that_can_t_be_used_is_an_error_that_names_the_variables(
    tmp_path: Path, no_proxies: pytest.MonkeyPatch
) -> None:
    server = _server(tmp_path)
    no_proxies.setenv("HTTPS_PROXY", "ftp://proxy:3128")
    with pytest.raises(DeploymentError, match="HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"):
        probe("fence.test:9443", server / "ca.crt")

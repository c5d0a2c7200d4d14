"""A node's first message, to a real TLS server on loopback."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest

from scripts.moonflower.doctor.bundle import Bundle
from scripts.moonflower.doctor.connection import check_connection
from scripts.moonflower.doctor.findings import Finding
from tests.scripts.doctor.bundles import Authority, tls_server
from tests.scripts.proxies import proxy


def to(node: Bundle, address: str) -> dict[str, Finding]:
    """Return the findings of a connection to ``address``, by check."""
    settings = {**node.settings, "MOONFLOWER_SUPERLINK": address}
    found = list(check_connection(replace(node, settings=settings)))
    assert all(each.remedy for each in found if each.status != "ok")
    return {each.check: each for each in found}


def test_a_server_of_the_bundle_s_ca_is_reached(server: Bundle, node: Bundle) -> None:
    with tls_server(server.folder) as port:
        found = to(node, f"127.0.0.1:{port}")
        by_name = to(node, f"localhost:{port}")
    assert {name: each.status for name, each in found.items()} == dict.fromkeys(
        ("TLS", "server certificate", "first message", "clock"), "ok"
    )
    assert by_name["TLS"].status == "ok"


@pytest.mark.parametrize(
    ("ahead", "status", "said"),
    [
        # The server's clock is ahead: the node's is behind.
        (0, "ok", "agrees"),
        (60, "warning", "s behind the server's"),
        (400, "failed", "s behind the server's"),
        (-4, "warning", "s ahead of the server's"),
        (-60, "failed", "s ahead of the server's"),
    ],
)
def test_clocks_are_compared_as_the_superlink_does(
    server: Bundle, node: Bundle, ahead: float, status: str, said: str
) -> None:
    with tls_server(server.folder, clock_ahead=ahead) as port:
        clock = to(node, f"127.0.0.1:{port}")["clock"]
    assert clock.status == status
    assert said in clock.found


def test_a_certificate_that_will_expire_soon_is_warned_of(
    server: Bundle, node: Bundle, authority: Authority
) -> None:
    authority.issue(server.folder, days=10)
    with tls_server(server.folder) as port:
        found = to(node, f"127.0.0.1:{port}")
    assert found["server certificate"].status == "warning"
    assert found["first message"].status == "ok"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("expired", "certificate has expired"),
        ("name", "It names fence.example and ends on"),
        ("other CA", "verify"),
    ],
)
def test_a_certificate_that_is_refused_is_described(
    server: Bundle, node: Bundle, authority: Authority, case: str, said: str
) -> None:
    if case == "expired":
        authority.issue(server.folder, days=-0.1, begins=-9)
    elif case == "name":
        authority.issue(server.folder, names=("fence.example",))
    else:
        Authority.make().issue(server.folder)
    with tls_server(server.folder) as port:
        found = to(node, f"127.0.0.1:{port}")
    # Where only the dates are wrong, the clocks can be compared all the same.
    assert list(found) == (["TLS", "clock"] if case == "expired" else ["TLS"])
    assert found["TLS"].status == "failed"
    assert said in found["TLS"].found or (case == "other CA" and "issuer" in found["TLS"].found)


def test_a_fence_without_a_superlink_behind_it_is_told_from_a_closed_port(
    server: Bundle, node: Bundle
) -> None:
    with tls_server(server.folder, status=502) as port:
        behind = to(node, f"127.0.0.1:{port}")["first message"]
    assert (behind.status, "502" in behind.found) == ("failed", True)
    assert "start the SuperLink" in behind.remedy
    closed = to(node, f"127.0.0.1:{port}")
    assert "can't be reached" in closed["server address"].found


def test_a_port_without_tls_is_said(node: Bundle) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer() -> None:
            connection, _ = plain.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        found = to(node, f"127.0.0.1:{plain.getsockname()[1]}")
        thread.join()
    assert "not with TLS" in found["TLS"].found


@pytest.mark.parametrize("address", ["", "fence.example", ":9443", "host:0", "host:99999"])
def test_an_address_without_host_or_port_is_refused(node: Bundle, address: str) -> None:
    found = to(node, address)["server address"].found
    assert f"address {address!r} can't be used: give it as host:port" in found


def test_without_a_usable_ca_nothing_is_asked(node: Bundle) -> None:
    node.file("ca.crt").write_text("hello\n")
    assert "no server was asked" in to(node, "localhost:9443")["TLS"].found
    node.file("ca.crt").unlink()
    assert "no server was asked" in to(node, "localhost:9443")["TLS"].found


def test_an_unknown_name_is_said(node: Bundle) -> None:
    found = to(node, "no-such-host.invalid:9443")["server address"]
    assert "is unknown here" in found.found


def test_a_node_behind_a_proxy_is_told_through_which(
    server: Bundle, node: Bundle, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    authority.issue(server.folder, names=("fence.test",))
    with tls_server(server.folder) as port, proxy({"fence.test": port}) as way:
        monkeypatch.setenv("HTTPS_PROXY", way.url)
        found = to(node, "fence.test:9443")
        refused = to(node, "other.test:9443")["server address"]
    through = f"through proxy 127.0.0.1:{way.server_port}"
    assert found["first message"].status == "ok"
    assert through in found["first message"].found
    assert through in refused.found
    assert "NO_PROXY" in refused.remedy

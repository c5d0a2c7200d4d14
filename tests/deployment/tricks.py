"""Ways to ask the fence for what it does not publish, written to a socket as they are.

Run as a program, so that it can be started in a network namespace:
``python -m tests.deployment.tricks HOST PORT CA`` prints the answers,
``python -m tests.deployment.tricks HOST`` the open ports, both as JSON.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys

FORBIDDEN = [
    "/",
    "/docs",
    "/openapi.json",
    "/v1/control/list-nodes",
    "//v1/control/list-nodes",
    "/v1//control/list-nodes",
    "/./v1/control/list-nodes",
    "/V1/Control/list-nodes",
    "/v1/control/%6cist-nodes",
    "/%76%31/control/list-nodes",
    "/v1/fleet/../control/list-nodes",
    "/v1/fleet/x/../../control/list-nodes",
    "/v1/fleet/activate-node/../../control/list-nodes",
    "/v1/fleet/%2e%2e/control/list-nodes",
    "/v1/fleet/.%2e/control/list-nodes",
    "/v1/fleet/%252e%252e/control/list-nodes",
    "/v1/fleet%2f..%2fcontrol/list-nodes",
    "/v1/fleet/..%2fcontrol%2flist-nodes",
    "/v1/fleet/..%5ccontrol%5clist-nodes",
    "/v1/fleet/..\\control\\list-nodes",
    "/v1/fleet/..;/control/list-nodes",
    "/v1/fleet/;/../../control/list-nodes",
    "/v1/fleet/%00/../../control/list-nodes",
    "/v1/fleet/pull-messages?/../../control/list-nodes",
    "/v1/fleet/pull-messages#/../../control/list-nodes",
    "/v1/control/../fleet/pull-messages",
    "//v1/fleet/pull-messages",
    "/health/../v1/control/list-nodes",
    "/health/",
    "/v1/runtime/pull-task",
    "/v1/runtime",
    "http://localhost/v1/control/list-nodes",
    "https://127.0.0.1:8000/v1/control/list-nodes",
]
VARIANTS = [
    ("POST", "1.1", "localhost"),
    ("GET", "1.1", "localhost"),
    ("POST", "1.0", "localhost"),
    ("POST", "1.1", "127.0.0.1:8000"),
    ("POST", "1.1", "v1/control"),
]


def ask(host: str, port: int, context: ssl.SSLContext, request: bytes) -> int:
    """Send bytes, and return the status of the answer; 0: there was none."""
    with (
        socket.create_connection((host, port), 60.0) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        secure.sendall(request)
        head = b""
        while b"\r\n" not in head:
            more = secure.recv(4096)
            if not more:
                return 0
            head += more
    return int(head.split(b" ", 2)[1])


def request(method: str, path: str, version: str = "1.1", host: str = "localhost") -> bytes:
    """Return a request without a body."""
    lines = [f"{method} {path} HTTP/{version}", f"Host: {host}", "Connection: close"]
    lines += ["Content-Type: application/protobuf", "Content-Length: 0"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def answers(host: str, port: int, ca: str) -> dict[str, int]:
    """Try everything, and return the statuses by what was tried."""
    context = ssl.create_default_context(cafile=ca)
    return {
        f"{method} {path} HTTP/{version} Host: {name}": ask(
            host, port, context, request(method, path, version, name)
        )
        for path in FORBIDDEN
        for method, version, name in VARIANTS
    }


def open_ports(host: str) -> list[int]:
    """Return the TCP ports of a host that accept connections."""
    found = []
    for port in range(1, 65536):
        with socket.socket() as probe:
            probe.settimeout(5.0)
            if probe.connect_ex((host, port)) == 0:
                found.append(port)
    return found


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(open_ports(sys.argv[1])))
    else:
        print(json.dumps(answers(sys.argv[1], int(sys.argv[2]), sys.argv[3])))

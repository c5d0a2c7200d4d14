"""A proxy as hospitals have them: it alone knows the way, and how names are called."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Proxy(http.server.ThreadingHTTPServer):
    """Makes tunnels (CONNECT) to the names that it knows, and nothing else.

    Parameters
    ----------
    names : Mapping[str, int]
        Name to a port of 127.0.0.1.
    """

    daemon_threads = True

    def __init__(self, names: Mapping[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.names = names
        self.asked: list[str] = []
        """What it was asked for, as ``CONNECT fence.test:9443``."""

    @property
    def url(self) -> str:
        """For ``HTTPS_PROXY``."""
        return f"http://127.0.0.1:{self.server_port}"


class _Tunnel(http.server.BaseHTTPRequestHandler):
    server: Proxy

    def _refuse(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_error(503, "unknown here")

    def do_GET(self) -> None:
        self._refuse()

    def do_POST(self) -> None:
        self._refuse()

    def do_CONNECT(self) -> None:
        name = self.path.rpartition(":")[0]
        if name not in self.server.names:
            self._refuse()
            return
        self.server.asked.append(f"CONNECT {self.path}")
        with socket.create_connection(("127.0.0.1", self.server.names[name])) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_copy, args=(there, self.connection), daemon=True)
            back.start()
            _copy(self.connection, there)
            back.join()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def proxy(names: Mapping[str, int]) -> Iterator[Proxy]:
    """Run a proxy."""
    with Proxy(names) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()

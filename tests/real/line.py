"""The line between a node and its server, which can be made to fail in every way that was seen."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

CLOSES, HANGS = "closes", "hangs"
"""Connections are accepted and closed; or accepted, and nothing ever comes."""


class Line:
    """Passes connections on to a port of 127.0.0.1, or misbehaves.

    Parameters
    ----------
    target : int
        The port.
    bundle : Path
        The server's, whose certificate answers when a status is to be answered.
    """

    def __init__(self, target: int, bundle: Path) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(bundle / "server.crt", bundle / "server.key")
        self._fault: str | int | None = None
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, fault: str | int) -> None:
        """From now on: :data:`CLOSES`, :data:`HANGS`, or a status that answers every request."""
        self._switch(fault)

    def heal(self) -> None:
        """Pass connections on again."""
        self._switch(None)

    def _switch(self, fault: str | int | None) -> None:
        with self._lock:
            self._fault = fault
            connections, self._open = self._open, []
        for each in connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self._server.close()
        self._switch(CLOSES)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            with self._lock:
                self.accepted += 1
                fault = self._fault
                self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection, fault), daemon=True).start()

    def _serve(self, connection: socket.socket, fault: str | int | None) -> None:
        with suppress(OSError), connection:
            if fault == CLOSES:
                # After the first bytes of TLS: the end comes as its end, and not as a reset.
                connection.recv(65536)
            elif fault == HANGS:
                while connection.recv(65536):
                    pass
            elif isinstance(fault, int):
                self._answer(connection, fault)
            elif fault is None:
                self._pass_on(connection)

    def _answer(self, connection: socket.socket, status: int) -> None:
        head = f"HTTP/1.1 {status} Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with self._context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(head.encode())

    def _pass_on(self, connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            with self._lock:
                self._open.append(server)
            back = threading.Thread(target=_copy, args=(server, connection), daemon=True)
            back.start()
            _copy(connection, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

"""The SuperLink on this machine's loopback, as ``flwr`` reaches it."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files import write_bytes
from scripts.moonflower import flwr
from scripts.moonflower.deployment.errors import SuperLinkError

_SECONDS = 300.0


@dataclass(frozen=True)
class LoopbackSuperLink:
    """A SuperLink on this machine, of a simulation or behind the fence of a federation.

    Attributes
    ----------
    port : int
        On 127.0.0.1.
    ca : Path or None
        Certificate of the federation's CA; None: without TLS.
    home : Path
        Flower's home, where ``flwr`` finds this connection.
    """

    port: int
    ca: Path | None
    home: Path

    def write(self) -> None:
        """Make it known to ``flwr`` under ``home``, as the default connection and the only one."""
        security = (
            f"root-certificates = {json.dumps(str(self.ca))}" if self.ca else "insecure = true"
        )
        text = (
            f'[superlink]\ndefault = "{flwr.CONNECTION}"\n\n[superlink.{flwr.CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\n{security}\n'
        )
        file = self.home / "config.toml"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_bytes(file, text.encode())

    def answers(self, seconds: float = 5.0) -> bool:
        """Return whether it is there, with this federation's certificate, within ``seconds``."""
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        scheme = "http"
        if self.ca:
            context = ssl.create_default_context(cafile=str(self.ca))
            handlers.append(urllib.request.HTTPSHandler(context=context))
            scheme = "https"
        opener = urllib.request.build_opener(*handlers)
        try:
            url = f"{scheme}://127.0.0.1:{self.port}/health"
            with opener.open(url, timeout=seconds) as reply:
                return bool(reply.status == 200)
        except OSError:  # of sockets, TLS and HTTP
            return False

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run ``flwr ARGUMENTS moonflower`` and return its answer.

        Raises
        ------
        SuperLinkError
            It failed; the message is its own.
        """
        env = flwr.environment(os.environ, self.home)
        text = flwr.ask([*arguments, flwr.CONNECTION], env, _SECONDS)
        answer = flwr.answer_in(text)
        if answer.get("success"):
            return answer
        why = str(answer.get("error-message") or text).strip()
        raise SuperLinkError(f"flwr {' '.join(arguments[:2])} failed: {why or 'without a word'}")

"""The SuperLink on this machine's loopback, as ``flwr`` reaches it."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files import write_bytes
from scripts.moonflower.deployment.errors import SuperLinkError
from scripts.moonflower.flwr_answer import answer_in
from scripts.moonflower.loopback import without_proxy

CONNECTION = "moonflower"
"""Its name for ``flwr run . moonflower``."""

_SECONDS = 300.0


@dataclass(frozen=True)
class Connection:
    """A way to a SuperLink.

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
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\n{security}\n'
        )
        file = self.home / "config.toml"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_bytes(file, text.encode())

    def answers(self) -> bool:
        """Return whether a SuperLink with this federation's certificate is there."""
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        scheme = "http"
        if self.ca:
            context = ssl.create_default_context(cafile=str(self.ca))
            handlers.append(urllib.request.HTTPSHandler(context=context))
            scheme = "https"
        opener = urllib.request.build_opener(*handlers)
        try:
            url = f"{scheme}://127.0.0.1:{self.port}/health"
            with opener.open(url, timeout=5.0) as reply:
                return bool(reply.status == 200)
        except OSError:  # of sockets, TLS and HTTP
            return False

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run ``flwr ARGUMENTS moonflower --format json`` and return its answer.

        Raises
        ------
        SuperLinkError
            It failed; the message is its own.
        """
        try:
            done = subprocess.run(
                ["flwr", *arguments, CONNECTION, "--format", "json"],
                env=flower_environment(os.environ, self.home),
                # It would take a folder of the connection's name, as a clone, for an app.
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SuperLinkError(
                f"flwr {' '.join(arguments[:2])} did not end within {_SECONDS:.0f} s"
            ) from None
        answer = answer_in(done.stdout)
        if done.returncode == 0 and answer.get("success"):
            return answer
        why = str(answer.get("error-message") or done.stdout + done.stderr).strip()
        raise SuperLinkError(f"flwr {' '.join(arguments[:2])} failed: {why or 'without a word'}")


def flower_environment(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return ``env`` for Flower's own commands: its home, no telemetry, no installations."""
    binaries = str(Path(sys.executable).parent)
    return {
        **env,
        "PATH": os.pathsep.join([binaries, env.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        # Or every run installs its dependencies (torch, some GB) anew.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",  # whatever the terminal is: this process reads it
        **without_proxy(env),
    }

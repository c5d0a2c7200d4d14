"""Programs that read ``NO_PROXY``, with proxies in the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.moonflower import flwr, simulated_superlink
from scripts.moonflower.loopback import without_proxy
from scripts.moonflower.submission import Submission

PROXIES = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "intern.example, ::1"}, "intern.example,::1,localhost,127.0.0.1"),
        # Programs read the one in small letters.
        ({"NO_PROXY": "a", "no_proxy": "b"}, "b,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "*"}, "*,localhost,127.0.0.1,::1"),
    ],
)
def test_loopback_is_added_to_what_no_proxy_says(given: dict[str, str], expected: str) -> None:
    assert without_proxy(given) == {"NO_PROXY": expected, "no_proxy": expected}


_GOES = """
import httpx, sys, threading, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in ("127.0.0.1", "localhost"):
    url = f"http://{host}:{server.server_port}/"
    assert httpx.get(url).status_code == 204
    assert urllib.request.urlopen(url).status == 204
"""


@pytest.mark.parametrize("made", ["deployment", "simulation", "run", "none"])
def test_what_we_start_reaches_its_own_machine_in_spite_of_a_proxy(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in PROXIES.items():
        monkeypatch.setenv(name, value)
    env = {
        "deployment": lambda: flwr.environment(os.environ, tmp_path),
        "simulation": lambda: simulated_superlink.environment(tmp_path, {}),
        "run": lambda: dict(Submission(tmp_path).env),
        "none": lambda: dict(os.environ),
    }[made]()
    done = subprocess.run(
        [sys.executable, "-c", _GOES], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (made != "none"), done.stderr

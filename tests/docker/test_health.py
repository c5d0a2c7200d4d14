"""The containers' health check, against a real server with TLS."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from tests.settings import ROOT


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the base class calls it by this name
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the server's bundle of two federations."""
    folders = [tmp_path_factory.mktemp("bundles") / name for name in ("ours", "theirs")]
    for folder in folders:
        arguments = ["provision", "--output", str(folder), "--server", "localhost"]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    return [folder / "server" for folder in folders]


@pytest.fixture(scope="module")
def port(bundles: list[Path]) -> Iterator[int]:
    """Return the port of a server with our federation's certificate."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(bundles[0] / "server.crt", bundles[0] / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def check(target: str, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docker" / "health.py"), target],
        env={"PATH": os.environ["PATH"], "https_proxy": "http://127.0.0.1:9", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_superlink_that_answers_with_our_certificate_is_healthy(
    bundles: list[Path], port: int
) -> None:
    env = {"MOONFLOWER_BUNDLE": str(bundles[0]), "MOONFLOWER_SUPERLINK_PORT": str(port)}
    assert check("server", **env) == (0, "healthy\n")


def test_a_certificate_of_another_federation_is_not_healthy(bundles: list[Path], port: int) -> None:
    env = {"MOONFLOWER_BUNDLE": str(bundles[1]), "MOONFLOWER_SUPERLINK_PORT": str(port)}
    code, said = check("server", **env)
    assert code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert str(bundles[1] / "ca.crt") in said


def test_a_superlink_that_is_not_there_is_not_healthy(bundles: list[Path]) -> None:
    env = {"MOONFLOWER_BUNDLE": str(bundles[0]), "MOONFLOWER_SUPERLINK_PORT": "9"}
    code, said = check("server", **env)
    assert code == 1
    assert "https://localhost:9/health" in said


def test_a_node_without_a_supernode_is_not_healthy_even_if_the_fence_answers(
    bundles: list[Path], port: int, tmp_path: Path
) -> None:
    env = {"MOONFLOWER_BUNDLE": str(bundles[0]), "MOONFLOWER_SUPERLINK": f"localhost:{port}"}
    script = tmp_path / "flower-supernode"
    script.write_text("import time\ntime.sleep(600)\n")
    # In a process namespace of its own: other tests' SuperNodes run on this machine.
    command = [sys.executable, str(ROOT / "docker" / "health.py"), "node"]
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a process namespace needs root and unshare")

    def run(shell: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*inside, "bash", "-c", shell, "bash", *command],
            env={"PATH": os.environ["PATH"], **env, "PYTHON": sys.executable, "NODE": str(script)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    without = run('"$@"')
    assert (without.returncode, without.stdout.partition(":")[0]) == (
        1,
        "no flower-supernode runs in this container",
    )
    with_one = run('"$PYTHON" "$NODE" & sleep 0.5; "$@"; code=$?; kill %1; exit $code')
    assert (with_one.returncode, with_one.stdout) == (0, "healthy\n"), with_one.stderr

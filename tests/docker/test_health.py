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
from scripts.moonflower.deployment import supernode_process
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


@pytest.fixture
def node(bundles: list[Path], port: int, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a node whose fence answers, with its state in ``tmp_path``."""
    (tmp_path / "flwr").mkdir()
    return {
        "MOONFLOWER_BUNDLE": str(bundles[0]),
        "MOONFLOWER_SUPERLINK": f"localhost:{port}",
        "MOONFLOWER_STATE_DIR": str(tmp_path),
        "no_proxy": "localhost",
    }


def test_a_node_whose_heartbeat_was_just_accepted_is_healthy(
    node: dict[str, str], tmp_path: Path
) -> None:
    # Where and how the SuperNode's process and the supervisor have it.
    supernode_process.note(tmp_path / "flwr" / supernode_process.HEARTBEAT)
    assert check("node", **node) == (0, "healthy\n")


def test_a_node_without_a_heartbeat_is_not_healthy_even_if_the_fence_answers(
    node: dict[str, str],
) -> None:
    code, said = check("node", **node)
    assert code == 1
    assert "no heartbeat since the SuperNode was started" in said
    assert "The fence answers" in said


def test_a_node_whose_last_heartbeat_is_old_is_not_healthy_and_the_way_is_looked_at(
    node: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "flwr" / supernode_process.HEARTBEAT
    supernode_process.note(file)
    old = file.stat().st_mtime - 100
    os.utime(file, (old, old))
    code, said = check("node", **{**node, "MOONFLOWER_SUPERLINK": "localhost:9"})
    assert code == 1
    assert "no heartbeat of this node for 10" in said
    assert "https://localhost:9/health" in said


def test_a_node_goes_through_its_proxy(node: dict[str, str]) -> None:
    code, said = check("node", **{**node, "no_proxy": "", "MOONFLOWER_SUPERLINK": "fence.test:1"})
    assert code == 1
    # Nobody listens at the proxy's port; without it, the name would be unknown.
    assert "Connection refused" in said

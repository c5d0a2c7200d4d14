"""What SuperLink and SuperNode are started with, from a bundle and the environment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from common.node_keys import KEYS_VARIABLE, NUMBERS_VARIABLE
from scripts.moonflower.deployment.environment_file import read_environment
from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.superlink import ServerSettings, run_superlink, why_not_now
from scripts.moonflower.deployment.supernode import NodeSettings
from scripts.moonflower.deployment.supervision import Verdict

EMPTY: dict[str, str] = {}


def _read(bundle: Path | None, env: dict[str, str], **more: object) -> NodeSettings:
    values: dict[str, object] = {"insecure": False, "superlink": None, **more}
    return NodeSettings.read(bundle, env, **values)  # type: ignore[arg-type]


@pytest.fixture
def node(made: Path) -> Path:
    """Return a node's bundle."""
    return made / "nodes" / "clinic-a"


def test_a_node_is_started_with_tls_and_its_key_and_an_interface_on_loopback(node: Path) -> None:
    command = list(_read(node, EMPTY).command())
    assert Path(command[1]).name == "flower-supernode"
    pairs = dict(zip(command[2::2], command[3::2], strict=True))
    assert pairs.pop("--port").isdecimal()
    assert pairs == {
        "--superlink": "fl.example.org:9443",
        "--host": "127.0.0.1",
        "--node-config": 'client-name="clinic-a"',
        "--root-certificates": str(node / "ca.crt"),
        "--auth-supernode-private-key": str(node / "node.key"),
    }


def test_the_superlink_is_started_on_loopback_with_tls_and_node_authentication(made: Path) -> None:
    command = list(ServerSettings.read(made / "server", EMPTY).command())
    assert "--insecure" not in command
    assert "--enable-supernode-auth" in command
    assert "--disable-runtime-dependency-installation" in command
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--ssl-certfile") + 1] == str(made / "server" / "server.crt")


def test_a_server_app_is_told_where_the_nodes_keys_and_numbers_are(
    made: Path, tmp_path: Path
) -> None:
    env = {"MOONFLOWER_DATABASE": str(tmp_path / "x.sqlite")}
    told = ServerSettings.read(made / "server", env).environment()
    assert told[KEYS_VARIABLE] == str(made / "server" / "nodes")
    assert told[NUMBERS_VARIABLE] == str(tmp_path / "x.sqlite.nodes.json")


def test_without_node_keys_it_is_told_nothing_of_them(made: Path, tmp_path: Path) -> None:
    env = {"MOONFLOWER_DATABASE": str(tmp_path / "x.sqlite"), KEYS_VARIABLE: "/elsewhere"}
    for bundle in (made / "server", None):
        told = ServerSettings.read(bundle, env, insecure=True).environment()
        assert not {KEYS_VARIABLE, NUMBERS_VARIABLE} & set(told)


def test_the_environment_wins_over_the_file_but_not_when_it_is_empty(node: Path) -> None:
    env = {"MOONFLOWER_SUPERLINK": "10.0.0.1:1", "MOONFLOWER_CLIENT_NAME": ""}
    settings = _read(node, env)
    assert (settings.superlink, settings.name) == ("10.0.0.1:1", "clinic-a")


def test_an_option_wins_over_both(node: Path) -> None:
    env = {"MOONFLOWER_SUPERLINK": "10.0.0.1:1"}
    assert _read(node, env, superlink="10.0.0.2:2").superlink == "10.0.0.2:2"


def test_a_laboratory_needs_no_bundle_but_a_name_and_a_state_folder(tmp_path: Path) -> None:
    env = {"MOONFLOWER_CLIENT_NAME": "x", "MOONFLOWER_STATE_DIR": str(tmp_path)}
    settings = _read(None, env, insecure=True, superlink="localhost:8000")
    assert "--insecure" in settings.command()
    assert "--auth-supernode-private-key" not in settings.command()
    for missing in env:
        rest = {key: value for key, value in env.items() if key != missing}
        with pytest.raises(DeploymentError, match=missing):
            _read(None, rest, insecure=True, superlink="localhost:8000")


@pytest.mark.parametrize("file", ["node.key", "ca.crt", "node.env"])
def test_a_missing_file_is_named(node: Path, file: str) -> None:
    (node / file).unlink()
    with pytest.raises(DeploymentError, match=file):
        _read(node, EMPTY)


def test_a_key_that_others_can_read_is_refused(node: Path) -> None:
    (node / "node.key").chmod(0o640)
    with pytest.raises(DeploymentError, match="chmod 600"):
        _read(node, EMPTY)


def test_a_damaged_key_is_refused(node: Path) -> None:
    (node / "node.key").write_text("x")
    with pytest.raises(DeploymentError, match="can't be used"):
        _read(node, EMPTY)


def test_without_a_bundle_nothing_starts() -> None:
    with pytest.raises(DeploymentError, match="--bundle"):
        _read(None, EMPTY)
    with pytest.raises(DeploymentError, match="--bundle"):
        ServerSettings.read(None, EMPTY)


def test_a_certificate_and_a_key_of_two_runs_are_refused(made: Path, tmp_path: Path) -> None:
    from scripts.moonflower.deployment.authority import Authority, private_pem

    key, _ = Authority.open(tmp_path / "other", 10).sign_server(["a.example"], 5)
    (made / "server" / "server.key").write_bytes(private_pem(key))
    with pytest.raises(DeploymentError, match="do not belong together"):
        run_superlink(ServerSettings.read(made / "server", EMPTY), print)


@pytest.mark.parametrize(
    ("line", "words"),
    [("no equals sign", "not KEY=value"), ("lower=x", "not KEY=value"), ('KEY="x"', "quotes")],
)
def test_a_line_that_not_everybody_reads_alike_is_refused(
    tmp_path: Path, line: str, words: str
) -> None:
    file = tmp_path / "node.env"
    file.write_text(f"# remark\n\nGOOD=a=b c\n{line}\n")
    with pytest.raises(DeploymentError, match=f"line 4.*{words}"):
        read_environment(file)


def test_a_superlink_whose_port_is_taken_says_so_and_tries_again(made: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = ServerSettings.read(made / "server", {"MOONFLOWER_SUPERLINK_PORT": str(port)})
        found = why_not_now(settings)
    assert found
    assert found.verdict is Verdict.RESTART
    assert f"port {port} on 127.0.0.1 can't be used" in found.reason
    assert "moonflower doctor server" in found.reason
    assert why_not_now(settings) is None

"""What `moonflower provision` writes fits the compose files."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.deployment.environment_file import read_environment
from scripts.moonflower.deployment.superlink import ServerSettings
from tests.docker.compose import NODE, SERVER, read


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a federation's folder."""
    folder = tmp_path_factory.mktemp("provisioned") / "federation"
    arguments = ["--server", "fl.example.org", "--node", "Clinic.A", "--port", "9555"]
    result = CliRunner().invoke(app, ["provision", "--output", str(folder), *arguments])
    assert result.exit_code == 0, result.stderr
    return folder


def test_the_fence_in_compose_publishes_what_the_one_without_does(federation: Path) -> None:
    bare, compose = (
        (federation / "server" / name).read_text().splitlines()
        for name in ("nginx.conf", "nginx.compose.conf")
    )
    different = [pair for pair in zip(bare, compose, strict=True) if pair[0] != pair[1]]
    assert [(old.strip(), new.strip()) for old, new in different] == [
        ("server 127.0.0.1:8000;", "server superlink:8000;"),
        ("listen 0.0.0.0:9555 ssl;", "listen 9443 ssl;"),
    ]


def test_compose_knows_the_fence_and_the_superlink_by_the_names_in_its_configuration(
    federation: Path,
) -> None:
    values = read_environment(federation / "server" / "server.env")
    services = read(SERVER, values=values)["services"]
    fence, superlink = services["fence"], services["superlink"]
    assert fence["entrypoint"][-1] == "/bundle/nginx.compose.conf"
    assert fence["ports"] == [{"target": 9443, "published": "9555", "host_ip": "0.0.0.0"}]  # noqa: S104
    address = superlink["networks"]["inside"]["ipv4_address"]
    assert fence["extra_hosts"] == [f"superlink:{address}"]
    assert superlink["environment"]["MOONFLOWER_SUPERLINK_PORT"] == "8000"


def test_a_bundles_settings_are_all_that_a_node_has_to_be_told(federation: Path) -> None:
    values = read_environment(federation / "nodes" / "Clinic.A" / "node.env")
    service = read(NODE, values=values)["services"]["supernode"]
    assert service["environment"]["MOONFLOWER_CLIENT_NAME"] == "Clinic.A"
    assert service["environment"]["MOONFLOWER_SUPERLINK"] == "fl.example.org:9555"
    bundle, data, _ = service["volumes"]
    assert bundle["source"] == values["MOONFLOWER_BUNDLE"]
    assert data["source"] == values["MOONFLOWER_DATA_DIR"]


def test_the_superlink_listens_on_loopback_unless_its_container_says_otherwise(
    federation: Path,
) -> None:
    def host(**env: str) -> str:
        command = ServerSettings.read(federation / "server", env).command()
        return command[command.index("--host") + 1]

    container = read(SERVER)["services"]["superlink"]["environment"]
    assert host() == "127.0.0.1"
    assert host(MOONFLOWER_SUPERLINK_ADDRESS="") == "127.0.0.1"
    assert host(**container) == "0.0.0.0"  # noqa: S104 (of a container)


def test_what_the_image_and_compose_set_wins_over_the_bundle(federation: Path) -> None:
    # In the bundle are folders of the host.
    env = {"MOONFLOWER_DATABASE": "/database/superlink.sqlite", "MOONFLOWER_SUPERLINK_PORT": "8000"}
    settings = ServerSettings.read(federation / "server", env)
    assert settings.database == Path("/database/superlink.sqlite")
    assert settings.home == Path("/database/flwr")

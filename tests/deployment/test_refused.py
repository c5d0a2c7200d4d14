"""Who is not let in, and what each of them is told."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from scripts.moonflower.deployment import authority as authority_module
from scripts.moonflower.deployment.authority import (
    Authority,
    certificate_pem,
    new_node_key,
    private_pem,
)
from tests.real.deployment import Deployment
from tests.real.processes import Group, free_port

BAD_CONFIGURATION, NO_PERMISSION = 78, 77
SHORT = {"MOONFLOWER_REFUSED_SECONDS": "1"}


def _copy(deployment: Deployment, name: str) -> Path:
    """Return a copy of a node's bundle on what would be another machine."""
    target = deployment.folder / "copies" / name
    shutil.copytree(deployment.bundle("clinic-a"), target)
    return target


def _start(deployment: Deployment, bundle: Path, *arguments: str, **settings: str) -> Group:
    group = Group(f"refused-{bundle.name}-{free_port()}", deployment.folder / f"{bundle.name}.log")
    state = {"MOONFLOWER_STATE_DIR": str(deployment.state / bundle.name)}
    env = deployment.environment() | SHORT | state | settings
    group.start([str(bundle / "start"), *arguments], env)
    return group


def _end(deployment: Deployment, bundle: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """Start a bundle, wait until it has given up, and return exit code and words."""
    group = _start(deployment, bundle, *arguments, **settings)
    try:
        return deployment.wait_for_end(group), group.printed()
    finally:
        group.kill()


def test_no_key(deployment: Deployment) -> None:
    bundle = _copy(deployment, "no-key")
    (bundle / "node.key").unlink()
    code, words = _end(deployment, bundle)
    assert code == BAD_CONFIGURATION
    assert "this node's private key" in words
    assert "is missing" in words


def test_no_key_and_no_supervisor(deployment: Deployment) -> None:
    command = ["flower-supernode", "--superlink", f"localhost:{deployment.port}"]
    command += ["--root-certificates", str(deployment.server / "ca.crt")]
    group = Group(f"stranger-{free_port()}", deployment.folder / "stranger.log")
    group.start([*command, "--port", str(free_port())], deployment.environment())
    try:
        assert deployment.wait_for_end(group) != 0
    finally:
        group.kill()
    assert "Exit Code: 305" in group.printed()
    assert "only nodes whose key was registered" in group.printed()


def test_an_unregistered_key(deployment: Deployment) -> None:
    bundle = _copy(deployment, "unregistered")
    (bundle / "node.key").write_bytes(new_node_key())
    code, words = _end(deployment, bundle)
    assert code == NO_PERMISSION
    assert "the key is not registered or was revoked there" in words


def test_a_key_copied_to_a_second_machine_while_the_first_is_online(
    deployment: Deployment,
) -> None:
    before = deployment.activated()
    code, words = _end(deployment, _copy(deployment, "copied"))
    assert code == NO_PERMISSION
    assert "another machine uses this key now" in words
    assert deployment.activated() == before
    assert deployment.nodes["clinic-a"].alive


@pytest.mark.long
def test_a_key_that_is_revoked_while_its_node_is_online(deployment: Deployment) -> None:
    deployment.provision("--node", "guest")
    assert "4 nodes are admitted" in deployment.moonflower(
        "nodes", "sync", "--bundle", str(deployment.server)
    )
    bundle = deployment.folder / "copies" / "guest"
    shutil.copytree(deployment.bundle("guest"), bundle)
    before = deployment.activated()
    guest = _start(deployment, bundle)
    try:
        deployment.wait_for_activations(before + 1)
        said = deployment.provision("--revoke", "guest")
        assert "the SuperLink on this machine was told; it admits 3 nodes" in said
        assert deployment.wait_for_end(guest) == NO_PERMISSION
        assert "was revoked there" in guest.printed()
    finally:
        guest.kill()


def test_plain_text(deployment: Deployment) -> None:
    bundle = _copy(deployment, "plain")
    code, words = _end(deployment, bundle, "--insecure")
    assert code == BAD_CONFIGURATION
    assert "WARNING: insecure mode" in words
    assert "it speaks TLS, and this node was started with --insecure" in words


def test_a_certificate_of_another_ca(deployment: Deployment, tmp_path: Path) -> None:
    bundle = _copy(deployment, "other-ca")
    Authority.open(tmp_path, 10)
    shutil.copy(tmp_path / "ca.crt", bundle / "ca.crt")
    code, words = _end(deployment, bundle)
    assert code == BAD_CONFIGURATION
    assert "was signed by another CA than" in words


def test_a_wrong_host_name(deployment: Deployment) -> None:
    bundle = _copy(deployment, "wrong-host")
    code, words = _end(deployment, bundle, "--superlink", f"127.0.0.2:{deployment.port}")
    assert code == BAD_CONFIGURATION
    assert "is for other names or addresses" in words


@pytest.fixture
def expired(deployment: Deployment) -> tuple[bytes, bytes]:
    """Return key and certificate of a server of this federation, which ended yesterday."""

    class LastMonth(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=30)

    authority = Authority.open(deployment.bundles / "ca", 1)
    with mock.patch.object(authority_module, "datetime", LastMonth):
        key, certificate = authority.sign_server(["localhost"], 29)
    return private_pem(key), certificate_pem(certificate)


def test_an_expired_certificate_is_named_and_tried_again(
    deployment: Deployment, expired: tuple[bytes, bytes]
) -> None:
    bundle = _copy(deployment, "expired")
    with deployment.second_fence("expired", pair=expired) as port:
        group = _start(deployment, bundle, "--superlink", f"localhost:{port}")
        try:
            # A new one on the server's side mends it, without anybody coming here.
            deployment.wait_for(group, "trying again")
            assert f"the certificate of localhost:{port} has expired" in group.printed()
            assert "moonflower provision --rotate server" in group.printed()
            assert group.alive
        finally:
            group.kill()

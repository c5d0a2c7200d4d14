"""Node keys, and whether the SuperLink knows them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from scripts.moonflower.deployment.authority import federation_id
from scripts.moonflower.deployment.fence_keys import renew_known_keys
from scripts.moonflower.deployment.node_registry import Registry, registrations_file
from scripts.moonflower.doctor.bundle import Bundle
from scripts.moonflower.doctor.findings import Finding
from scripts.moonflower.doctor.keys import (
    check_known_keys,
    check_node_key,
    check_public_keys,
    check_registrations,
    fingerprint,
)
from tests.scripts.doctor.bundles import new_key, public_line, write_secret


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    return found


def test_a_fingerprint_is_that_of_ssh_keygen(node: Bundle) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("there is no ssh-keygen")
    file = node.file("node.pub")
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(file)], capture_output=True, text=True, check=True
    ).stdout
    assert shown.split()[1] == fingerprint(file.read_bytes())


def test_a_node_s_key_is_shown_by_its_fingerprint(node: Bundle) -> None:
    found = only(list(check_node_key(node)))
    assert found.status == "ok"
    assert fingerprint(node.file("node.pub").read_bytes()) in found.found


def test_a_public_key_of_another_node_is_said(node: Bundle) -> None:
    node.file("node.pub").write_bytes(public_line(new_key()))
    assert "belongs to another private key" in only(list(check_node_key(node))).found


@pytest.mark.parametrize("kind", ["nonsense", "another curve", "no ECDSA", "not in OpenSSH format"])
def test_a_key_that_flower_could_not_use_is_said(node: Bundle, kind: str) -> None:
    ssh = serialization.PrivateFormat.OpenSSH
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    blobs = {
        "nonsense": b"hello\n",
        "another curve": ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, ssh, none),
        "no ECDSA": ed25519.Ed25519PrivateKey.generate().private_bytes(pem, ssh, none),
        "not in OpenSSH format": new_key().private_bytes(
            pem, serialization.PrivateFormat.PKCS8, none
        ),
    }
    write_secret(node.file("node.key"), blobs[kind])
    found = only(list(check_node_key(node)))
    assert found.status == "failed"
    assert "no ECDSA P-384 private key" in found.found


def test_two_names_with_one_key_and_names_that_are_none_are_said(server: Bundle) -> None:
    line = public_line(new_key())
    for name in ("clinic-a", "clinic-b"):
        (server.file("nodes") / f"{name}.pub").write_bytes(line)
    (server.file("nodes") / "Clinic-A.pub").write_bytes(public_line(new_key()))
    (server.file("nodes") / "a b.pub").write_bytes(public_line(new_key()))
    (server.file("nodes") / "c.pub").write_text("ssh-rsa nonsense")
    said = [f"{each.status} {each.check}: {each.found}" for each in check_public_keys(server)]
    assert any("failed key of clinic-b: is the key of clinic-a" in text for text in said)
    assert any("warning node keys: Clinic-A and clinic-a differ by case" in text for text in said)
    assert any("'a b' can't be a client's name" in text for text in said)
    assert any("failed key of c: " in text for text in said)


def test_a_fence_that_knows_other_keys_than_the_bundle_has_fails(server: Bundle) -> None:
    keys, revoked = server.file("nodes"), server.file("revoked")
    (keys / "clinic-a.pub").write_bytes(public_line(new_key()))
    assert only(list(check_known_keys(server))).status == "failed"
    renew_known_keys(keys, revoked, print)
    assert only(list(check_known_keys(server))).status == "ok"
    (keys / "clinic-b.pub").write_bytes(public_line(new_key()))
    found = only(list(check_known_keys(server)))
    assert (found.status, "moonflower nodes sync" in found.remedy) == ("failed", True)


def test_another_federations_list_of_registered_keys_fails(server: Bundle) -> None:
    (server.file("nodes") / "clinic-a.pub").write_bytes(public_line(new_key()))
    notes = registrations_file(Path(server.settings["MOONFLOWER_DATABASE"]))
    notes.parent.mkdir(parents=True)
    notes.write_text(json.dumps({"federation": "aa" * 32, "bb": "17"}))
    found = only(list(check_registrations(server)))
    assert (found.status, "belongs to another federation" in found.found) == ("failed", True)


class Numbers:
    """Registers every key under the next number."""

    count = 0

    def flwr(self, *arguments: str) -> dict[str, Any]:
        if arguments[1] == "list":
            return {"nodes": []}
        self.count += 1
        return {"node-id": str(self.count)}


def test_keys_that_were_registered_are_told_from_those_that_were_not(server: Bundle) -> None:
    def add(name: str) -> None:
        file = server.file("nodes") / f"{name}.pub"
        file.write_bytes(public_line(new_key()) + f" {name}\n".encode())  # as provision writes it

    add("known")
    add("left")
    before = list(check_registrations(server))
    assert [each.status for each in before] == ["ok", "ok"]
    assert all("to be registered when the SuperLink starts" in each.found for each in before)
    notes = registrations_file(Path(server.settings["MOONFLOWER_DATABASE"]))
    keys, revoked = server.file("nodes"), server.file("revoked")
    Registry(
        keys, revoked, notes, federation_id(server.file("ca.crt")), Numbers(), lambda _: None
    ).synchronise()
    add("new")
    revoked.mkdir()
    (revoked / "left-1.pub").write_bytes((keys / "left.pub").read_bytes())
    known, left, new = check_registrations(server)
    assert known.status == "ok"
    assert fingerprint((keys / "known.pub").read_bytes()) in known.found
    assert (left.status, "was revoked" in left.found) == ("warning", True)
    assert (new.status, "not registered" in new.found) == ("failed", True)
    assert f"moonflower nodes sync --bundle {server.folder}" in new.remedy

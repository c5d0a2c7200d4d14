"""What the CA signs, and when it signs anew."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.scripts.provision.conftest import Provision


def _certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "server" / "server.crt").read_bytes())


def _handshake(server: Path, ca: Path, host: str) -> list[str]:
    """Shake hands as nginx and a node do, strictly; return the names that the node was shown."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server / "server.crt", server / "server.key")
    trusting = ssl.create_default_context(cafile=str(ca))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            serving.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with trusting.wrap_socket(here, server_hostname=host) as shaken:
            shown = shaken.getpeercert() or {}
    finally:
        here.close()
        thread.join()
    return [str(name) for _, name in shown.get("subjectAltName", ())]  # type: ignore[misc]


@pytest.mark.parametrize("host", ["fl.example.org", "192.0.2.10", "localhost", "127.0.0.1"])
def test_a_node_accepts_the_server_under_each_of_its_names(made: Path, host: str) -> None:
    assert host in _handshake(made / "server", made / "nodes" / "clinic-a" / "ca.crt", host)


def test_a_node_refuses_the_server_under_another_name(made: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        _handshake(made / "server", made / "nodes" / "clinic-a" / "ca.crt", "other.example.org")


def test_a_node_refuses_the_server_of_another_federation(made: Path, tmp_path: Path) -> None:
    from scripts.moonflower.deployment.authority import Authority

    other = tmp_path / "other"
    Authority.open(other, 10)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(made / "server", other / "ca.crt", "fl.example.org")


def test_the_names_are_dns_names_and_the_addresses_are_addresses(made: Path) -> None:
    found = _certificate(made).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert found.value.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert found.value.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("192.0.2.10"),
        ipaddress.ip_address("127.0.0.1"),
    ]


def test_certificates_begin_in_the_past_and_last_as_long_as_asked_for(
    folder: Path, provision: Provision
) -> None:
    arguments = ["--server", "a.example", "--ca-days", "100", "--server-days", "10"]
    assert provision(*arguments).exit_code == 0
    found, now = _certificate(folder), datetime.now(UTC)
    assert now - timedelta(hours=1) < found.not_valid_before_utc < now - timedelta(minutes=5)
    assert abs(found.not_valid_after_utc - now - timedelta(days=10)) < timedelta(minutes=5)


def test_a_server_certificate_does_not_outlive_its_ca(folder: Path, provision: Provision) -> None:
    assert provision("--server", "a.example", "--ca-days", "20").exit_code == 0
    ca = x509.load_pem_x509_certificate((folder / "ca" / "ca.crt").read_bytes())
    assert _certificate(folder).not_valid_after_utc == ca.not_valid_after_utc


def test_the_certificate_is_renewed_when_a_name_was_added(made: Path, provision: Provision) -> None:
    before = _certificate(made)
    assert "names or addresses changed" in provision("--server", "new.example.org").output
    assert _certificate(made).serial_number != before.serial_number
    _handshake(made / "server", made / "ca" / "ca.crt", "new.example.org")


def test_the_certificate_is_renewed_on_request_with_another_key(
    made: Path, provision: Provision
) -> None:
    before = _certificate(made)
    result = provision("--rotate", "server")
    assert result.exit_code == 0
    assert "SuperLink and fence are started again" in result.output
    assert "nodes sync" not in result.output, "that takes keys only"
    assert _certificate(made).public_key() != before.public_key()
    _handshake(made / "server", made / "nodes" / "clinic-a" / "ca.crt", "fl.example.org")


def test_a_certificate_that_ends_within_a_month_is_renewed(
    folder: Path, provision: Provision
) -> None:
    assert provision("--server", "a.example", "--server-days", "29").exit_code == 0
    before = _certificate(folder)
    assert "it ends on" in provision("--server-days", "300").output
    assert _certificate(folder).not_valid_after_utc > before.not_valid_after_utc


def test_a_certificate_that_ends_with_its_ca_is_not_renewed_in_vain(
    folder: Path, provision: Provision
) -> None:
    assert provision("--server", "a.example", "--ca-days", "20").exit_code == 0
    before = _certificate(folder)
    assert "nothing was changed" in provision().output
    assert _certificate(folder) == before


def test_an_expired_ca_is_refused(made: Path, provision: Provision) -> None:
    from cryptography.hazmat.primitives import hashes

    key = serialization.load_pem_private_key((made / "ca" / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    old = x509.load_pem_x509_certificate((made / "ca" / "ca.crt").read_bytes())
    expired = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2021, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA384())
    )
    (made / "ca" / "ca.crt").write_bytes(expired.public_bytes(serialization.Encoding.PEM))
    result = provision("--node", "clinic-c")
    assert result.exit_code == 2
    assert "expired on 2021-01-01" in result.output
    assert not (made / "nodes" / "clinic-c").exists()


def test_a_lost_ca_key_is_said_and_not_replaced(made: Path, provision: Provision) -> None:
    (made / "ca" / "ca.key").unlink()
    result = provision("--node", "clinic-c")
    assert result.exit_code == 2
    assert "ca.key is missing" in result.output
    assert not (made / "ca" / "ca.key").exists()

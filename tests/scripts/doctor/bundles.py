"""Bundles as `moonflower provision` lays them out, and a TLS server in the fence's place."""

from __future__ import annotations

import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scripts.moonflower.doctor.bundle import Bundle, Role

NAMES = ("fence.example", "localhost", "127.0.0.1")
_PEM = serialization.Encoding.PEM
_OPENSSH = serialization.Encoding.OpenSSH


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def write_secret(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
    path.chmod(0o600)


@dataclass
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls) -> Authority:
        key = new_key()
        return cls(key, _signed("test CA", key, key, "test CA", (), timedelta(days=365)))

    def write(self, folder: Path) -> None:
        (folder / "ca.crt").write_bytes(self.certificate.public_bytes(_PEM))

    def issue(
        self,
        folder: Path,
        names: tuple[str, ...] = NAMES,
        days: float = 90,
        begins: float = -1,
    ) -> None:
        """Write ``server.crt`` and ``server.key``; ``begins`` is in days from now."""
        key = new_key()
        made = _signed("server", key, self.key, "test CA", names, timedelta(days=days), begins)
        (folder / "server.crt").write_bytes(made.public_bytes(_PEM))
        write_secret(folder / "server.key", _private(key, serialization.PrivateFormat.PKCS8))


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(_PEM, form, serialization.NoEncryption())


def _signed(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    issuer: str,
    names: tuple[str, ...],
    valid: timedelta,
    begins: float = -1,
) -> x509.Certificate:
    def called(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    now = datetime.now(UTC)
    is_ca = subject == issuer
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(called(subject))
        .issuer_name(called(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(_usage(signs=is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority_id, critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer_key, hashes.SHA384())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def make_bundle(folder: Path, role: Role, settings: dict[str, str]) -> Bundle:
    """Write a bundle's folder and settings, 0700 and 0600."""
    folder.mkdir(mode=0o700, parents=True)
    text = "# made by a test\n" + "".join(f"{k}={v}\n" for k, v in settings.items())
    write_secret(folder / f"{role}.env", text.encode())
    return Bundle.open(folder, role)


def write_node_key(folder: Path, key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    """Write ``node.key`` and ``node.pub``, and return the public key's line."""
    key = key or new_key()
    write_secret(folder / "node.key", _private(key, serialization.PrivateFormat.OpenSSH))
    line = public_line(key)
    (folder / "node.pub").write_bytes(line)
    return line


def public_line(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(_OPENSSH, serialization.PublicFormat.OpenSSH)


@contextmanager
def tls_server(folder: Path, status: int = 200, clock_ahead: float = 0.0) -> Iterator[int]:
    """Serve ``/health`` on loopback with the certificate in ``folder``; yield the port."""

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            moment = datetime.now(UTC).timestamp() if timestamp is None else timestamp
            return super().date_time_string(moment + clock_ahead)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that refuses the certificate is no error of the server's."""

    server = Quiet(("127.0.0.1", 0), Health)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

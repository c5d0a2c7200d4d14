"""Certificates: chain, names, dates, and the key that belongs to one."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from scripts.moonflower.deployment.authority import LOCAL_HOSTS, RENEW_BEFORE
from scripts.moonflower.doctor.bundle import (
    CA_CERTIFICATE,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    SERVER_NAME,
    Bundle,
)
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

_RENEW = "moonflower provision --rotate server, then copy the server's bundle and restart"
_RENEW_CA = "make a new federation with `moonflower provision`: all bundles change"


def read_certificate(path: Path) -> x509.Certificate | None:
    """Return the first certificate of a PEM file; ``None`` where it holds none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        return None


def check_ca(bundle: Bundle) -> Iterator[Finding]:
    """Look at the CA's certificate."""
    path = bundle.file(CA_CERTIFICATE)
    certificate = read_certificate(path)
    if certificate is None:
        yield failed("CA certificate", f"{path} is no PEM certificate", "copy the bundle again")
        return
    yield check_dates("CA certificate", certificate, _RENEW_CA)


def check_server_certificate(bundle: Bundle) -> Iterator[Finding]:
    """Look at the server's certificate as its clients will."""
    path, key_path = bundle.file(SERVER_CERTIFICATE), bundle.file(SERVER_KEY)
    certificate = read_certificate(path)
    if certificate is None:
        yield failed("server certificate", f"{path} is no PEM certificate", _RENEW)
        return
    yield check_dates("server certificate", certificate, _RENEW)
    if not _belongs(certificate, key_path):
        found = f"{key_path} is not the private key of {path}, or is none at all"
        yield failed("server key", found, f"copy both again from one bundle, or {_RENEW}")
        return
    yield ok("server key", "belongs to the certificate")
    names = dict.fromkeys([bundle.settings.get(SERVER_NAME, ""), *LOCAL_HOSTS])
    for name in filter(None, names):
        yield _check_name(bundle, name, certificate)


def check_dates(check: str, certificate: x509.Certificate, remedy: str) -> Finding:
    """Look at the time in which a certificate is valid."""
    now = datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        found = f"is valid from {begin:%Y-%m-%d %H:%M} UTC, and now it is {now:%Y-%m-%d %H:%M}"
        return failed(check, found, "set this machine's clock (NTP)")
    if now > end:
        return failed(check, f"expired on {end:%Y-%m-%d %H:%M} UTC", remedy)
    if end - now < RENEW_BEFORE:
        return warning(check, f"expires in {(end - now).days} days, {end:%Y-%m-%d} UTC", remedy)
    return ok(check, f"valid until {end:%Y-%m-%d} ({(end - now).days} days)")


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the subject alternative names: DNS names, then addresses."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *(str(each) for each in addresses)]


def _belongs(certificate: x509.Certificate, key_path: Path) -> bool:
    try:
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (ValueError, TypeError):  # no key; one with a password
        return False
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)


def _check_name(bundle: Bundle, name: str, certificate: x509.Certificate) -> Finding:
    check = f"certificate for {name}"
    problem = handshake_problem(
        bundle.file(CA_CERTIFICATE), bundle.file(SERVER_CERTIFICATE), bundle.file(SERVER_KEY), name
    )
    if not problem:
        return ok(check, "a client that trusts the bundle's CA accepts it")
    found = f"a client refuses it: {problem}. It names {', '.join(names_of(certificate)) or '-'}"
    return failed(check, found, f"add the name to federation.toml, then {_RENEW}")


def handshake_problem(ca: Path, certificate: Path, key: Path, name: str) -> str:
    """Return why a TLS client refuses a certificate for ``name``; empty if it accepts it.

    Client and server are played here, in memory: what decides is OpenSSL, as in a real handshake.
    """
    try:
        client = ssl.create_default_context(cafile=str(ca))
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            client.wrap_bio(to_client, to_server, server_hostname=name),
            server.wrap_bio(to_server, to_client, server_side=True),
        )
        for _ in range(4):  # TLS 1.3 needs two turns
            done = [_step(end) for end in ends]  # both take their turn, whatever the first says
            if all(done):
                return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (ssl.SSLError, ValueError) as error:
        return str(error)
    return "the handshake does not come to an end"


def _step(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True

"""The certificate authority, the server's certificate and the nodes' keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.files import sha256, write_bytes
from scripts.moonflower.deployment.description import is_address
from scripts.moonflower.deployment.errors import DeploymentError

CLOCK_SKEW = timedelta(minutes=10)
"""Certificates begin so much in the past: the clocks of other machines may be behind."""

RENEW_BEFORE = timedelta(days=30)
"""A server certificate that ends earlier is renewed by the next provisioning."""

LOCAL_HOSTS = ("localhost", "127.0.0.1")
"""The fence and `flwr` reach the SuperLink by these."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority that exists for one federation."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def open(cls, folder: Path, days: int) -> Authority:
        """Read ``ca.key`` and ``ca.crt``, or make what is missing.

        A lost certificate is made anew from its key: nodes that trust the old one trust both.

        Raises
        ------
        DeploymentError
            The key alone is missing, or they don't fit, can't be read or have expired.
        """
        key_file, certificate_file = folder / "ca.key", folder / "ca.crt"
        if certificate_file.exists() and not key_file.exists():
            raise DeploymentError(
                f"{key_file} is missing: put it back from where you keep it (nothing can be signed "
                "without it), or provision a new federation in another folder"
            )
        if not key_file.exists():
            write_bytes(key_file, private_pem(ec.generate_private_key(ec.SECP384R1())))
        if not certificate_file.exists():
            made = cls._with_key(read_private_key(key_file), days)
            write_bytes(certificate_file, certificate_pem(made.certificate))
        found = cls(read_private_key(key_file), read_certificate(certificate_file))
        if found.certificate.public_key() != found.key.public_key():
            raise DeploymentError(
                f"{certificate_file} does not belong to {key_file}: put back the pair from a backup"
            )
        if found.certificate.not_valid_after_utc <= datetime.now(UTC):
            raise DeploymentError(
                f"the federation's CA {certificate_file} expired on "
                f"{found.certificate.not_valid_after_utc:%Y-%m-%d}: no node trusts what it signs. "
                "Provision a new federation in another folder and hand out new bundles."
            )
        return found

    @classmethod
    def _with_key(cls, key: ec.EllipticCurvePrivateKey, days: int) -> Authority:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Moonflower federation CA")])
        builder = (
            _builder(name, name, key.public_key(), datetime.now(UTC) + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(key, builder.sign(key, hashes.SHA384()))

    def sign_server(
        self, hosts: Iterable[str], days: int
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Return a new key and certificate for a server with these names and addresses.

        It does not outlive the authority.
        """
        hosts = tuple(hosts)
        key = ec.generate_private_key(ec.SECP384R1())
        # A common name holds 64 characters; nobody reads it, since there are SANs.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
        end = min(datetime.now(UTC) + timedelta(days=days), self.certificate.not_valid_after_utc)
        authority = cast(ec.EllipticCurvePublicKey, self.certificate.public_key())
        builder = (
            _builder(subject, self.certificate.subject, key.public_key(), end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternative_names(hosts)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False
            )
        )
        return key, builder.sign(self.key, hashes.SHA384())


def why_renew(certificate: x509.Certificate, authority: Authority, hosts: Iterable[str]) -> str:
    """Return why a server's certificate has to be made anew; empty: it need not."""
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return "it was signed by another CA"
    wanted = set(alternative_names(hosts))
    there = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    if wanted != there:
        return "the server's names or addresses changed"
    end = certificate.not_valid_after_utc
    if end - datetime.now(UTC) < RENEW_BEFORE and end < authority.certificate.not_valid_after_utc:
        return f"it ends on {end:%Y-%m-%d}"
    return ""


def alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Return ``hosts`` and this machine's loopback as SANs, in order and each once."""
    return [
        x509.IPAddress(ipaddress.ip_address(host)) if is_address(host) else x509.DNSName(host)
        for host in dict.fromkeys((*hosts, *LOCAL_HOSTS))
    ]


def new_node_key() -> bytes:
    """Return a new ECDSA P-384 private key in OpenSSH's format."""
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def public_line(private: bytes, name: str) -> bytes:
    """Return the public key of an OpenSSH private key as a line that ends in ``name``.

    Raises
    ------
    ValueError
        It isn't an unencrypted elliptic curve key in OpenSSH's format.
    """
    key = serialization.load_ssh_private_key(private, None)
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return line + f" {name}\n".encode()


def federation_id(ca: Path) -> str:
    """Return what tells a federation from others: the SHA-256 of its CA's public key, in hex.

    Raises
    ------
    DeploymentError
        The CA's certificate is missing or is none.
    """
    key = read_certificate(ca).public_key()
    return sha256(
        key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return the certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM (PKCS 8), unencrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def read_certificate(file: Path) -> x509.Certificate:
    """Read a certificate.

    Raises
    ------
    DeploymentError
        It is missing or no certificate; the message names the file.
    """
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise DeploymentError(f"the certificate {file} can't be read: {error}") from None


def read_private_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """Read an elliptic curve key in PEM.

    Raises
    ------
    DeploymentError
        It is missing or no such key; the message names the file.
    """
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise DeploymentError(f"the key {file} can't be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DeploymentError(f"the key {file} is no elliptic curve key")
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

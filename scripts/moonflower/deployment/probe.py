"""A first look at a server, as a SuperNode would see it: is it there, and is it the right one?"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.supervision import Ending, Verdict

_SECONDS = 15.0

# OpenSSL's numbers for why a certificate is not trusted (X509_V_ERR_*).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_WRONG_HOST = (62, 64)


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[IPv6]:port``.

    Raises
    ------
    DeploymentError
        It is something else.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise DeploymentError(
            f"the server's address {address!r} can't be used: give it as host:port, without "
            "https://, as fl.example.org:9443 or [2001:db8::1]:9443"
        )
    return host, int(port)


def probe(address: str, ca: Path | None) -> Ending | None:
    """Connect to a server and look at its certificate.

    Flower's SuperNode tells these cases apart in its log only, and only some of them.

    Parameters
    ----------
    address : str
        ``host:port``.
    ca : Path or None
        Certificate of the only CA that is trusted; None: without TLS.

    Returns
    -------
    Ending or None
        Why a SuperNode need not start now; None: nothing speaks against it.

    Raises
    ------
    DeploymentError
        The address or the CA's certificate can't be used.
    """
    host, port = parse_address(address)
    context = _trusting(ca) if ca else None
    try:
        with socket.create_connection((host, port), _SECONDS) as plain:
            if context:
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return Ending(Verdict.STOP, _explain(error, address, ca))
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return Ending(
                Verdict.STOP,
                f"what answers at {address} does not speak TLS: is that the fence, or a SuperLink "
                "that was started with --insecure? This node has a certificate and sends nothing "
                "in plain text",
            )
        return Ending(Verdict.RESTART, f"no TLS connection to {address} ({error})")
    except OSError as error:
        return Ending(Verdict.RESTART, f"the server {address} can't be reached ({error})")
    return None


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise DeploymentError(
            f"the certificate of the federation's CA, {ca}, can't be read: {error}"
        ) from None


def _explain(error: ssl.SSLCertVerificationError, address: str, ca: Path | None) -> str:
    said = f"({error.verify_message})"
    if error.verify_code == _EXPIRED:
        return (
            f"the certificate of {address} has expired {said}: on the server's side, run "
            "moonflower provision --rotate server and install the new bundle. If it has not, this "
            "machine's clock is wrong"
        )
    if error.verify_code == _NOT_YET_VALID:
        return f"the certificate of {address} is not valid yet {said}: set this machine's clock"
    if error.verify_code in _WRONG_HOST:
        return (
            f"the certificate of {address} is for other names or addresses {said}: use one of "
            "those in MOONFLOWER_SUPERLINK (node.env), or add this one on the server's side with "
            "moonflower provision --server and install the new bundle"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"the certificate of {address} was signed by another CA than {ca} {said}: either that "
            "is another server, or this bundle is of another federation. Nothing was sent to it"
        )
    return f"the certificate of {address} can't be trusted {said}"

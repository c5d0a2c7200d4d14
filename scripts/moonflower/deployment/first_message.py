"""A first message to a server, on the way that Flower's SuperNode takes: TLS, and proxies if any.

Flower's client is httpx, which goes through the proxy that the environment names
(``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``). So this is httpx as well.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from cryptography import x509

from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.loopback import LOOPBACK_HOSTS

SECONDS = 15.0

AHEAD, BEHIND = 5.0, 300.0
"""A SuperLink of flwr 1.42 refuses a node whose clock differs from its own by more seconds."""

NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons when what answers speaks something else."""

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for


@dataclass(frozen=True)
class Answer:
    """What a server said.

    Attributes
    ----------
    status : int
        Of HTTP.
    date : str
        Its clock, as the header shows it; empty: not said.
    certificate : x509.Certificate or None
        None: without TLS.
    asked, answered : float
        This machine's clock, seconds since 1970.
    """

    status: int
    date: str
    certificate: x509.Certificate | None
    asked: float
    answered: float


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


def ask(address: str, ca: Path | None, *, ignore_dates: bool = False) -> Answer:
    """Ask a server for ``/health``.

    Parameters
    ----------
    address : str
        ``host:port``.
    ca : Path or None
        Certificate of the only CA that is trusted; None: without TLS.
    ignore_dates : bool
        Whether a certificate may be expired or not yet valid; all else is checked.

    Raises
    ------
    DeploymentError
        The address, the CA's certificate, or what the environment says of proxies can't be used.
    httpx.TransportError
        There was no answer. ``ssl.SSLError`` and other reasons are among its causes.
    """
    host, port = parse_address(address)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    url = f"{'https' if ca else 'http'}://{place}/health"
    context = _trusting(ca) if ca else None
    if context and ignore_dates:
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    try:
        client = httpx.Client(
            verify=context or False,
            timeout=SECONDS,
            mounts=dict.fromkeys(LOOPBACK_HOSTS.values()),
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise DeploymentError(
            "the proxy in the environment (HTTPS_PROXY, HTTP_PROXY or ALL_PROXY) can't be used: "
            f"{error}. Give it as http://host:port"
        ) from None
    with client:
        asked = time.time()
        with client.stream("GET", url) as reply:
            answered = time.time()
            stream = reply.extensions["network_stream"].get_extra_info("ssl_object")
            shown = stream.getpeercert(True) if stream else None
        certificate = x509.load_der_x509_certificate(shown) if shown else None
        return Answer(
            reply.status_code, reply.headers.get("Date", ""), certificate, asked, answered
        )


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # those of TLS are among them
        raise DeploymentError(
            f"the certificate of the federation's CA, {ca}, can't be read: {error}"
        ) from None


def clock_ahead(answer: Answer) -> float | None:
    """Return by how many seconds this machine's clock is ahead of the server's, at least.

    Negative: behind. 0: they may agree. None: the server did not say.
    """
    try:
        theirs = parsedate_to_datetime(answer.date).timestamp()
    except (ValueError, TypeError):
        return None
    # The date was true at some moment between question and answer, and its second had begun then.
    ahead, behind = answer.asked - (theirs + 1), theirs - answer.answered
    return max(ahead, 0.0) or -max(behind, 0.0)


def describe_clock(ahead: float) -> str:
    """Say in words what :func:`clock_ahead` found."""
    where = "ahead of" if ahead > 0 else "behind"
    return (
        f"this machine's clock is at least {abs(ahead):.0f} s {where} the server's; a SuperLink "
        f"lets in a node that is at most {AHEAD:.0f} s ahead and {BEHIND:.0f} s behind"
    )


def clock_is_refused(ahead: float) -> bool:
    """Whether a SuperLink refuses a node because of its clock."""
    return ahead > AHEAD or ahead < -BEHIND


def proxy_for(address: str, *, tls: bool) -> str:
    """Return the proxy between here and a server, without a password; empty: there is none."""
    host, port = parse_address(address)
    proxies = urllib.request.getproxies()
    proxy = proxies.get("https" if tls else "http") or proxies.get("all") or ""
    if host in LOOPBACK_HOSTS or urllib.request.proxy_bypass(f"{host}:{port}"):
        return ""
    return proxy.rpartition("@")[2].rpartition("://")[2].rstrip("/")


def through(address: str, *, tls: bool) -> str:
    """Return `` through proxy X`` for a message about a server, or nothing."""
    proxy = proxy_for(address, tls=tls)
    return f" through proxy {proxy}" if proxy else ""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

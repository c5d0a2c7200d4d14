"""A first look at a server, as a SuperNode would see it: is it there, and is it the right one?"""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from scripts.moonflower.deployment.first_message import (
    NOT_TLS,
    ask,
    causes,
    clock_ahead,
    clock_is_refused,
    describe_clock,
    through,
)
from scripts.moonflower.deployment.supervision import Ending, Verdict

# OpenSSL's numbers for why a certificate is not trusted (X509_V_ERR_*).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_WRONG_HOST = (62, 64)

_TOO_MANY_REQUESTS = 429


def probe(address: str, ca: Path | None) -> Ending | None:
    """Ask a server for ``/health``, and look at its certificate and its clock.

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
        The address, the CA's certificate or the proxy's address can't be used.
    """
    way = through(address, tls=ca is not None)
    try:
        answer = ask(address, ca)
    except httpx.TransportError as error:
        return _judge_failure(error, address, ca, way)
    if answer.status >= 500 or answer.status == _TOO_MANY_REQUESTS:
        return Ending(
            Verdict.RESTART,
            f"{address}{way} answers {answer.status}: the fence is there, but the SuperLink behind "
            "it is not, or both are too busy",
        )
    ahead = clock_ahead(answer)
    if ahead is not None and clock_is_refused(ahead):
        return Ending(Verdict.RESTART, f"{describe_clock(ahead)}: set both clocks (NTP)")
    return None


def _judge_failure(error: httpx.TransportError, address: str, ca: Path | None, way: str) -> Ending:
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _explain(cause, address, ca)
        if isinstance(cause, ssl.SSLError) and cause.reason in NOT_TLS:
            return Ending(
                Verdict.STOP,
                f"what answers at {address}{way} does not speak TLS: is that the fence, or a "
                "SuperLink that was started with --insecure? This node has a certificate and sends "
                "nothing in plain text",
            )
    return Ending(
        Verdict.RESTART,
        f"the server {address} can't be reached{way} ({error or type(error).__name__})",
    )


def _explain(error: ssl.SSLCertVerificationError, address: str, ca: Path | None) -> Ending:
    said = f"({error.verify_message})"
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        # Clocks get set, and certificates renewed: no person has to come here for that.
        return Ending(Verdict.RESTART, _explain_dates(error, address, ca))
    if error.verify_code in _WRONG_HOST:
        return Ending(
            Verdict.STOP,
            f"the certificate of {address} is for other names or addresses {said}: use one of "
            "those in MOONFLOWER_SUPERLINK (node.env), or add this one on the server's side with "
            "moonflower provision --server and install the new bundle",
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return Ending(
            Verdict.STOP,
            f"the certificate of {address} was signed by another CA than {ca} {said}: either that "
            "is another server, or this bundle is of another federation. Nothing was sent to it",
        )
    return Ending(Verdict.STOP, f"the certificate of {address} can't be trusted {said}")


def _explain_dates(error: ssl.SSLCertVerificationError, address: str, ca: Path | None) -> str:
    """Say whose fault it is that a certificate is not valid now: its own, or of the clock here."""
    try:
        ahead = clock_ahead(ask(address, ca, ignore_dates=True))
    except httpx.TransportError:
        ahead = None
    state = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
    said = f"the certificate of {address} {state} ({error.verify_message})"
    if ahead is not None and clock_is_refused(ahead):
        return f"{said}, because {describe_clock(ahead)}: set this machine's clock (NTP)"
    if error.verify_code == _EXPIRED and ahead is not None:
        return (
            f"{said}, and this machine's clock is right: on the server's side, run moonflower "
            "provision --rotate server and install the new bundle"
        )
    return f"{said}: set this machine's clock, or the server's, where the certificate was made"

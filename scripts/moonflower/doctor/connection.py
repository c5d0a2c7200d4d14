"""A node's first message: through the network, TLS and the fence to the SuperLink."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from cryptography import x509

from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.probe import parse_address
from scripts.moonflower.doctor.bundle import CA_CERTIFICATE, CLIENT_NAME, SUPERLINK, Bundle
from scripts.moonflower.doctor.certificates import check_dates, names_of
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning
from scripts.moonflower.doctor.ports import command_of

SECONDS = 10.0
AHEAD, BEHIND = 5.0, 300.0
"""A SuperLink of flwr 1.42 refuses a node whose clock differs from its own by more seconds."""

_RENEW = "ask whoever runs the server: moonflower provision --rotate server"


@dataclass(frozen=True)
class _Answer:
    status: int
    date: str
    certificate: x509.Certificate | None
    asked: float
    answered: float


def check_connection(bundle: Bundle) -> Iterator[Finding]:
    """Ask the fence for ``/health`` as the SuperNode would reach it; the node's key is not used."""
    address = bundle.settings.get(SUPERLINK, "")
    try:
        host, port = parse_address(address)
    except DeploymentError as error:
        yield failed("server address", str(error), f"set {SUPERLINK} to the fence's")
        return
    ca = bundle.file(CA_CERTIFICATE)
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # TLS errors are among them
        found = f"no server was asked, since {ca} can't be used: {error}"
        yield failed("TLS", found, "copy the bundle again")
        return
    try:
        answer = _ask(host, port, context)
    except ssl.SSLCertVerificationError as error:
        yield _refused(host, error, _presented(host, port))
        return
    except ssl.SSLError as error:
        found = f"{address} answers, but not with TLS 1.2 or newer: {error.reason or error}"
        yield failed("TLS", found, "check that this is the port of the fence, not another's")
        return
    except socket.gaierror as error:
        found = f"the name {host} is unknown here: {error.strerror}"
        yield failed("server address", found, "mend DNS, or add it to /etc/hosts")
        return
    except (OSError, http.client.HTTPException) as error:
        found = f"{address} can't be reached: {error or type(error).__name__}"
        remedy = "check that the fence runs, and firewalls between here and there"
        yield failed("server address", found, remedy)
        return
    yield from _judge(address, answer)


def _judge(address: str, answer: _Answer) -> Iterator[Finding]:
    yield ok("TLS", f"{address} is who the bundle's CA says")
    if answer.certificate is not None:
        yield check_dates("server certificate", answer.certificate, _RENEW)
    if answer.status == 200:
        yield ok("first message", "the SuperLink answers through the fence")
    else:
        found = f"GET /health at {address} was answered with {answer.status}"
        remedy = "start the SuperLink" if answer.status >= 500 else "check that this is the fence"
        yield failed("first message", found, f"{remedy}; `moonflower doctor server` says more")
    yield _check_clock(answer)


def _check_clock(answer: _Answer) -> Finding:
    try:
        theirs = parsedate_to_datetime(answer.date).timestamp()
    except (ValueError, TypeError):
        found = "not compared: the server's answer has no date"
        return warning("clock", found, "check that the address is the fence's")
    # The date was true at some moment between question and answer, and its second had begun then.
    ahead = answer.asked - (theirs + 1)
    behind = theirs - answer.answered
    if ahead > AHEAD or behind > BEHIND:
        found = f"{_skew(ahead, behind)} the server's: the SuperLink will refuse this node"
        return failed("clock", found, "set both clocks (NTP: chrony or systemd-timesyncd)")
    if max(ahead, behind) > 1:
        found = f"{_skew(ahead, behind)} the server's; allowed are {AHEAD:g} ahead"
        return warning("clock", found, "set both clocks (NTP: chrony or systemd-timesyncd)")
    return ok("clock", "agrees with the server's to about a second")


def _skew(ahead: float, behind: float) -> str:
    if ahead > behind:
        return f"this machine's is at least {ahead:.0f} s ahead of"
    return f"this machine's is at least {behind:.0f} s behind"


def _ask(host: str, port: int, context: ssl.SSLContext) -> _Answer:
    connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    try:
        connection.connect()
        shown = connection.sock.getpeercert(binary_form=True)
        asked = time.time()
        connection.request("GET", "/health")
        reply = connection.getresponse()
        reply.read()
        certificate = x509.load_der_x509_certificate(shown) if shown else None
        return _Answer(reply.status, reply.headers.get("Date", ""), certificate, asked, time.time())
    finally:
        connection.close()


def _presented(host: str, port: int) -> x509.Certificate | None:
    """Return the certificate that was refused: only to say what it names and when it ended."""
    try:
        pem = ssl.get_server_certificate((host, port), timeout=SECONDS)
        return x509.load_pem_x509_certificate(pem.encode())
    except (OSError, ValueError):
        return None


def _refused(
    host: str, error: ssl.SSLCertVerificationError, certificate: x509.Certificate | None
) -> Finding:
    found = f"the certificate of {host} is refused: {error.verify_message}"
    if certificate is not None:
        end = certificate.not_valid_after_utc
        names = ", ".join(names_of(certificate)) or "nothing"
        found += f". It names {names} and ends on {end:%Y-%m-%d %H:%M} UTC"
    remedy = (
        "use a name that it has, set this machine's clock, or get the bundle that belongs to the "
        f"server; if it expired, {_RENEW}. If none of it explains this, somebody else answers there"
    )
    return failed("TLS", found, remedy)


def check_name_unique(bundle: Bundle, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Look whether SuperNodes of this name run on this machine already (Linux)."""
    name = bundle.settings.get(CLIENT_NAME, "")
    running = []
    for folder in proc.iterdir() if proc.is_dir() else ():
        if folder.name.isdecimal() and folder.name != str(os.getpid()) and _is_node(folder, name):
            running.append(folder.name)
    if len(running) > 1:
        found = f"{len(running)} SuperNodes named {name} run here: processes {', '.join(running)}"
        yield failed("one node of this name", found, "end all but one, or give them other names")
    elif running:
        yield ok("one node of this name", f"it runs already, process {running[0]}")
    else:
        found = "none runs on this machine; the server says at the start if one runs elsewhere"
        yield ok("one node of this name", found)


def _is_node(process: Path, name: str) -> bool:
    try:
        if command_of(process) != "flower-supernode":
            return False
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to somebody else
        return False
    return f"{CLIENT_NAME}={name}".encode() in variables

"""A node's first message: through the network, TLS and the fence to the SuperLink."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
from cryptography import x509

from scripts.moonflower.deployment.errors import DeploymentError
from scripts.moonflower.deployment.first_message import (
    AHEAD,
    BEHIND,
    NOT_TLS,
    Answer,
    ask,
    causes,
    clock_ahead,
    clock_is_refused,
    describe_clock,
    parse_address,
    through,
)
from scripts.moonflower.doctor.bundle import CA_CERTIFICATE, CLIENT_NAME, SUPERLINK, Bundle
from scripts.moonflower.doctor.certificates import check_dates, names_of
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning
from scripts.moonflower.doctor.ports import command_of

_RENEW = "ask whoever runs the server: moonflower provision --rotate server"
_SET_CLOCKS = "set both clocks (NTP: chrony or systemd-timesyncd)"
_PROXY = "HTTPS_PROXY, NO_PROXY (node.env or the environment)"


def check_connection(bundle: Bundle) -> Iterator[Finding]:
    """Ask the fence for ``/health`` as the SuperNode would reach it; the node's key is not used."""
    address = bundle.settings.get(SUPERLINK, "")
    try:
        host, _ = parse_address(address)
    except DeploymentError as error:
        yield failed("server address", str(error), f"set {SUPERLINK} to the fence's")
        return
    ca = bundle.file(CA_CERTIFICATE)
    try:
        ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # TLS errors are among them
        found = f"no server was asked, since {ca} can't be used: {error}"
        yield failed("TLS", found, "copy the bundle again")
        return
    way = through(address, tls=True)
    try:
        answer = ask(address, ca)
    except DeploymentError as error:
        yield failed("proxy", str(error), f"mend {_PROXY}")
    except httpx.TransportError as error:
        yield from _explain(error, address, host, ca, way)
    else:
        yield from _judge(address, answer, way)


def _explain(
    error: httpx.TransportError, address: str, host: str, ca: Path, way: str
) -> Iterator[Finding]:
    """Say why there was no answer."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            yield _refused(host, cause, None if way else _presented(address))
            yield from _clock_beside_refused_dates(address, ca)
            return
        if isinstance(cause, ssl.SSLError) and cause.reason in NOT_TLS:
            found = f"{address} answers{way}, but not with TLS 1.2 or newer: {cause.reason}"
            yield failed("TLS", found, "check that this is the port of the fence, not another's")
            return
        if isinstance(cause, socket.gaierror) and not way:
            found = f"the name {host} is unknown here: {cause.strerror}"
            remedy = f"mend DNS, add it to /etc/hosts, or name the proxy that knows it in {_PROXY}"
            yield failed("server address", found, remedy)
            return
    found = f"{address} can't be reached{way}: {error or type(error).__name__}"
    remedy = "check that the fence runs, and firewalls between here and there"
    if way:
        remedy += f". If the proxy is not meant for it, set {_PROXY}; it must allow CONNECT"
    yield failed("server address", found, remedy)


def _judge(address: str, answer: Answer, way: str) -> Iterator[Finding]:
    yield ok("TLS", f"{address} is who the bundle's CA says")
    if answer.certificate is not None:
        yield check_dates("server certificate", answer.certificate, _RENEW)
    if answer.status == 200:
        yield ok("first message", f"the SuperLink answers through the fence{way}")
    else:
        found = f"GET /health at {address}{way} was answered with {answer.status}"
        remedy = "start the SuperLink" if answer.status >= 500 else "check that this is the fence"
        yield failed("first message", found, f"{remedy}; `moonflower doctor server` says more")
    yield _check_clock(answer)


def _check_clock(answer: Answer) -> Finding:
    ahead = clock_ahead(answer)
    if ahead is None:
        found = "not compared: the server's answer has no date"
        return warning("clock", found, "check that the address is the fence's")
    if clock_is_refused(ahead):
        return failed("clock", describe_clock(ahead), _SET_CLOCKS)
    if abs(ahead) > 1:
        return warning("clock", describe_clock(ahead), _SET_CLOCKS)
    found = "agrees with the server's to about a second"
    return ok("clock", f"{found}; allowed are {AHEAD:.0f} s ahead and {BEHIND:.0f} s behind")


def _clock_beside_refused_dates(address: str, ca: Path) -> Iterator[Finding]:
    """Compare clocks with a server of the right CA whose certificate is not valid now."""
    with suppress(httpx.TransportError):  # it is refused for another reason, which was said
        yield _check_clock(ask(address, ca, ignore_dates=True))


def _presented(address: str) -> x509.Certificate | None:
    """Return the certificate that was refused: only to say what it names and when it ended."""
    try:
        pem = ssl.get_server_certificate(parse_address(address), timeout=10.0)
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

"""Connections to this machine itself, which no proxy can make."""

from __future__ import annotations

from collections.abc import Mapping

LOOPBACK_HOSTS = {
    "localhost": "all://localhost",
    "127.0.0.1": "all://127.0.0.1",
    "::1": "all://[::1]",
}
"""Host to httpx's pattern for its URLs."""


def without_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """Return what to set so that the programs that ``env`` is for reach their own machine.

    Flower's processes talk to each other over loopback, and all of them go through
    ``HTTP_PROXY`` if it is set. What ``NO_PROXY`` says already stays.
    """
    # Of two spellings, programs read the one in small letters first.
    given = env.get("no_proxy", env.get("NO_PROXY", ""))
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    value = ",".join([*hosts, *(host for host in LOOPBACK_HOSTS if host not in hosts)])
    return {"no_proxy": value, "NO_PROXY": value}

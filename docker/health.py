"""Health check of a container: ``server`` asks the SuperLink, ``node`` looks at its heartbeats,
``dashboard`` asks for the live page.

It runs every half minute, so it imports nothing but what comes with Python.
"""

from __future__ import annotations

import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

TIMEOUT = 8.0
ONLINE_SECONDS = 60.0
"""Without a heartbeat for so long, the server counts a node as offline; one comes every 20 s."""


def answers(address: str, proxies: dict[str, str] | None) -> str:
    """Return what is wrong with ``https://address/health``; empty: nothing.

    ``proxies`` are those on the way; None: as the environment says.
    """
    authority = Path(os.environ.get("MOONFLOWER_BUNDLE") or "/bundle") / "ca.crt"
    url = f"https://{address}/health"
    try:
        context = ssl.create_default_context(cafile=str(authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=TIMEOUT) as reply:
            return "" if reply.status == 200 else f"{url} answers {reply.status}"
    except OSError as error:
        return f"{url} with {authority}: {error}"


def server() -> str:
    """Return what is wrong with the SuperLink in this container."""
    # No proxy knows this container's loopback.
    return answers(f"localhost:{os.environ.get('MOONFLOWER_SUPERLINK_PORT') or '8000'}", {})


def node() -> str:
    """Return why the SuperNode in this container is not online; its supervisor restarts it."""
    # As scripts/moonflower/deployment has it: the same sign by which the supervisor goes.
    file = Path(os.environ.get("MOONFLOWER_STATE_DIR") or "/state") / "flwr" / "heartbeat"
    try:
        silent = time.time() - file.stat().st_mtime
    except OSError:
        problem = "the server accepted no heartbeat since the SuperNode was started"
    else:
        if silent <= ONLINE_SECONDS:
            return ""
        problem = f"the server accepted no heartbeat of this node for {silent:.0f} s"
    fence = os.environ.get("MOONFLOWER_SUPERLINK")
    if not fence:
        return f"{problem}. MOONFLOWER_SUPERLINK is not set: host:port of the fence"
    return f"{problem}. {answers(fence, None) or 'The fence answers: the log says more'}"


def dashboard() -> str:
    """Return what is wrong with the live page in this container; it knows no visitor here."""
    url = "http://localhost:8765/"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=TIMEOUT):
            return ""
    except urllib.error.HTTPError as error:
        return "" if error.code == 401 else f"{url} answers {error.code}"
    except OSError as error:
        return f"{url}: {error}"


CHECKS: dict[str, Callable[[], str]] = {"server": server, "node": node, "dashboard": dashboard}


def main() -> int:
    """Print what is wrong, and return the exit status that Docker expects."""
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        print(f"health.py: one of {', '.join(CHECKS)} is needed, not {sys.argv[1:]}")
        return 1
    problem = CHECKS[sys.argv[1]]()
    print((problem or "healthy").encode("ascii", "backslashreplace").decode())
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())

"""Health check of a container: ``server`` asks the SuperLink, ``node`` the fence and the SuperNode.

It runs every half minute, so it imports nothing but what comes with Python.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TIMEOUT = 8.0


def answers(address: str) -> str:
    """Return what is wrong with ``https://address/health``; empty: nothing."""
    authority = Path(os.environ.get("MOONFLOWER_BUNDLE") or "/bundle") / "ca.crt"
    url = f"https://{address}/health"
    try:
        context = ssl.create_default_context(cafile=str(authority))
        # No proxy: the federation's own certificate counts, and no one else's.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=TIMEOUT) as reply:
            return "" if reply.status == 200 else f"{url} answers {reply.status}"
    except OSError as error:
        return f"{url} with {authority}: {error}"


def server() -> str:
    """Return what is wrong with the SuperLink in this container."""
    return answers(f"localhost:{os.environ.get('MOONFLOWER_SUPERLINK_PORT') or '8000'}")


def node() -> str:
    """Return what is wrong with the SuperNode in this container, or on its way to the fence."""
    if not any(_is_supernode(folder) for folder in Path("/proc").iterdir()):
        return "no flower-supernode runs in this container: its log says why"
    fence = os.environ.get("MOONFLOWER_SUPERLINK")
    return answers(fence) if fence else "MOONFLOWER_SUPERLINK is not set: host:port of the fence"


def _is_supernode(folder: Path) -> bool:
    with suppress(OSError):
        words = (folder / "cmdline").read_bytes().split(b"\0")
        return any(Path(os.fsdecode(word)).name == "flower-supernode" for word in words[:2])
    return False


CHECKS: dict[str, Callable[[], str]] = {"server": server, "node": node}


def main() -> int:
    """Print what is wrong, and return the exit status that Docker expects."""
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        print(f"health.py: one of {', '.join(CHECKS)} is needed, not {sys.argv[1:]}")
        return 1
    problem = CHECKS[sys.argv[1]]()
    print(problem or "healthy")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())

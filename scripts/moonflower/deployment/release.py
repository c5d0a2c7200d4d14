"""Which versions a bundle was made with, for the doctor on the machine that gets it."""

from __future__ import annotations

import platform
from importlib import metadata

APP = "moonflower"
PACKAGES = ("flwr", "torch", "numpy")
"""Those that decide about what a run computes and whether both ends understand each other."""

VERSIONS_FILE = "versions.json"


def versions_here() -> dict[str, str]:
    """Return the versions of Python, the app and the packages that matter; "" where missing."""
    found = {"python": platform.python_version()}
    for name in (APP, *PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found

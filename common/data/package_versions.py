"""Versions of the packages that prepared data depend on."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def installed_version(package: str) -> str:
    """Return the version of an installed package.

    Looked up once for each process: searching the environment takes most of a millisecond, and a
    simulated client asks with every message.
    """
    return metadata.version(package)

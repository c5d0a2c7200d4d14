"""Versions: are they what the app was made for, and those of the server?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from common.config import SettingsError
from scripts.moonflower.deployment.release import APP, PACKAGES, VERSIONS_FILE
from scripts.moonflower.doctor.bundle import Bundle
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

_INSTALL = "run scripts/environment, which installs the tested versions"


def wanted_versions() -> dict[str, SpecifierSet]:
    """Return what the app asks for, from its own metadata (pyproject.toml)."""
    requirements = [Requirement(text) for text in metadata.requires(APP) or ()]
    wanted = {each.name: each.specifier for each in requirements if each.name in PACKAGES}
    python = metadata.metadata(APP)["Requires-Python"]
    return {"python": SpecifierSet(python or ""), **wanted}


def check_versions(
    bundle: Bundle, own: Mapping[str, str], wanted: Mapping[str, SpecifierSet]
) -> Iterator[Finding]:
    """Compare with what the app needs, then with what the server said it has."""
    for name, allowed in wanted.items():
        version = own[name]
        if version and allowed.contains(version, prereleases=True):
            yield ok(name, version)
        else:
            found = f"{version or 'not installed'}, the app needs {name} {allowed}"
            yield failed(name, found, _INSTALL)
    yield from _compare(bundle, own)


def _compare(bundle: Bundle, own: Mapping[str, str]) -> Iterator[Finding]:
    file = bundle.file(VERSIONS_FILE)
    line = " ".join(f"{name}={version or '-'}" for name, version in own.items())
    if not file.is_file():
        # Nothing on the wire tells a version before a run: the query does when one begins.
        yield ok("versions here", f"{line} (to compare with the other side's)")
        return
    try:
        theirs = dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{file} is not a JSON object: {error}. Copy it again") from None
    differing = [
        f"{name} {own.get(name) or 'missing'} instead of {version}"
        for name, version in sorted(theirs.items())
        if name in own and _release(name, own[name]) != _release(name, str(version))
    ]
    if not differing:
        yield ok("versions here", f"{line}: as noted in the bundle")
        return
    # A node runs the code that the server sends (the FAB) in its own environment, so a different
    # release mostly works, but results need not be the same bits.
    yield warning(
        "versions here",
        f"{'; '.join(differing)} (noted in {file.name} when the bundle was made)",
        f"use one release on all machines: {_INSTALL}",
    )


def _release(name: str, version: str) -> str:
    """Return the part of a version that both ends should share: not Python's patch, not "+cpu"."""
    public = version.partition("+")[0]
    return ".".join(public.split(".")[:2]) if name == "python" else public

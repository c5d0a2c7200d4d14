"""Reading compose files: variables replaced, override files merged, as far as ours need it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.settings import ROOT

FOLDER = ROOT / "docker"
SERVER = "compose.server.yml"
NODE = "compose.node.yml"
CPU = "compose.node.cpu.yml"
FILES = (SERVER, NODE, CPU)

VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?P<kind>:?[-?])?(?P<rest>[^}]*)\}")


class Reset:
    """Stands for ``!reset``: what the earlier file says is taken away."""


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor("!reset", lambda _loader, _node: Reset())


def variables(text: str) -> set[str]:
    """Return the names of the variables that a compose file is given."""
    return {match["name"] for match in VARIABLE.finditer(text)}


def read(*names: str, values: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return compose files, merged in this order, with ``values`` for their variables.

    A variable that has to be given and is not becomes its name in capital letters.
    """
    merged: dict[str, Any] = {}
    for name in names:
        text = replaced((FOLDER / name).read_text(), values or {})
        # The loader is SafeLoader with one more tag.
        merged = _merged(merged, yaml.load(text, _Loader))  # noqa: S506
    return merged


def replaced(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with its variables replaced as compose does."""

    def value(match: re.Match[str]) -> str:
        name, kind = match["name"], match["kind"] or ""
        given = values.get(name)
        if given or (given is not None and ":" not in kind):
            return given
        return name if "?" in kind else match["rest"]

    return VARIABLE.sub(value, text)


def source(mount: str | dict[str, Any]) -> tuple[str, str, bool]:
    """Return what is mounted, where, and whether read-only."""
    if isinstance(mount, dict):
        return mount["source"], mount["target"], bool(mount.get("read_only"))
    what, where, *mode = mount.split(":")
    return what, where, mode == ["ro"]


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        keys = {key: _merged(below.get(key), above[key]) for key in above}
        return {k: v for k, v in {**below, **keys}.items() if not isinstance(v, Reset)}
    return below + above if isinstance(below, list) and isinstance(above, list) else above


def dockerfile_copies() -> list[str]:
    """Return what docker/Dockerfile takes from the repository."""
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = re.findall(r"^(?:COPY|ADD)\s+(.*)$", text, re.MULTILINE)
    return [word for line in lines if "--from=" not in line for word in line.split()[:-1]]


def ignore_rules(file: Path) -> list[str]:
    """Return the rules of a .dockerignore."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]

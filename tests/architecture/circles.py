"""Which modules import each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.architecture.imports import ALLOWED, imported_modules


def import_graph(root: Path) -> dict[str, set[str]]:
    """Return, for every module of the four packages, the modules of theirs that it imports.

    Imports count wherever they stand, also inside functions and under TYPE_CHECKING: a late import
    hides a circle, it doesn't open it. Importing a module runs the ``__init__`` of every package
    around it; those around the importing module as well are running already and don't count.
    """
    modules = {
        _name(path.relative_to(root)): path
        for package in ALLOWED
        for path in (root / package).rglob("*.py")
    }
    return {
        name: (set(_reached(name, path, root, modules)) & modules.keys()) - {name}
        for name, path in modules.items()
    }


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return a circle of imports, the same module first and last; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _reached(name: str, path: Path, root: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for _, source, taken in imported_modules(path, root):
        parts = [f"{source}.{each}" for each in taken]
        # "from package import module" needs nothing of the package's own.
        own = [] if parts and all(part in modules for part in parts) else [source]
        for target in (*own, *(part for part in parts if part in modules)):
            yield target
            yield from _packages_started(name, target, modules)


def _packages_started(name: str, target: str, modules: Mapping[str, Path]) -> Iterator[str]:
    while "." in target:
        target = target.rpartition(".")[0]
        if target in modules and not f"{name}.".startswith(f"{target}."):
            yield target

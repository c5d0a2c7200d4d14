"""Which top-level packages may import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ALLOWED: Mapping[str, frozenset[str]] = {
    "common": frozenset(),
    "client_app": frozenset({"common"}),
    "server_app": frozenset({"common"}),
    "scripts": frozenset({"common", "client_app", "server_app"}),
}
"""Besides itself. ``tests`` may import all and is imported by nothing."""

_OURS = {*ALLOWED, "tests"}


def violations(root: Path) -> list[str]:
    """Return ``file:line: package imports package`` for every import against :data:`ALLOWED`.

    Imports count wherever they stand: inside functions, under TYPE_CHECKING, relative ones, and
    ``import_module("...")`` with a literal name.
    """
    found = []
    for package, allowed in ALLOWED.items():
        for path in sorted((root / package).rglob("*.py")):
            for line, name, _ in imported_modules(path, root):
                target = name.split(".")[0]
                if target in _OURS and target != package and target not in allowed:
                    found.append(f"{path.relative_to(root)}:{line}: {package} imports {name}")
    return found


def imported_modules(path: Path, root: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line, module and the names taken from it, of every import in a file.

    The names may be modules themselves.
    """
    inside = path.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            base = inside[: len(inside) - node.level + 1] if node.level else ()
            parts = [*base, *([node.module] if node.module else [])]
            if node.module or base:
                yield node.lineno, ".".join(parts), names
            else:  # "from .. import x" out of a top-level package names the package in x
                yield from ((node.lineno, name, []) for name in names)
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            argument = node.args[0]
            is_import = name in ("import_module", "__import__")
            if is_import and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield node.lineno, argument.value, []

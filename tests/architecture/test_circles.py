"""No module needs another one that needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.circles import circle, import_graph
from tests.settings import ROOT


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = import_graph(ROOT)
    assert circle(graph) == []
    # The graph has edges: a wrong path would find no circle either.
    assert "common.config" in graph["server_app.app"]
    assert "common.data.spec" in graph["common.data"]


def write(root: Path, files: dict[str, str]) -> None:
    """Write files below ``common``."""
    for path, source in {"__init__.py": "", **files}.items():
        file = root / "common" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": "import common.b", "b.py": "from common.a import x"},
        {"a.py": "from common import b", "b.py": "def f():\n    from common import a"},
        {
            "a.py": "import typing\nif typing.TYPE_CHECKING:\n    from common.b import B",
            "b.py": "from common.c import C",
            "c.py": "from .a import A",
        },
        # The package around b is started with it, and needs a.
        {"p/__init__.py": "from common.a import x", "p/b.py": "", "a.py": "import common.p.b"},
        # A name of the package's own, asked for from inside.
        {"p/__init__.py": "from common.p.b import x", "p/b.py": "from common.p import y"},
    ],
)
def test_a_circle_is_found(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    found = circle(import_graph(tmp_path))
    assert len(found) > 2
    assert found[0] == found[-1]


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": "import common.b", "b.py": "import json"},
        # b asks its running package for another module, not for a name of its own.
        {
            "p/__init__.py": "from common.p.b import x",
            "p/b.py": "from common.p import c",
            "p/c.py": "",
        },
    ],
)
def test_what_is_no_circle_is_not(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert circle(import_graph(tmp_path)) == []

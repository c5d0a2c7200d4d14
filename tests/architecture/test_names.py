"""Two files share a name only where they do the same in two places."""

from __future__ import annotations

from collections import defaultdict

from tests.architecture.imports import ALLOWED
from tests.settings import ROOT

SAME_JOB = {
    "__init__.py",
    "app.py",  # Flower's entry point, on each side
    "base.py",  # what every file of a room is: a term, a task, a kind, a source
    "command.py",  # a command with subjects or parts of its own
    "errors.py",  # a package's errors
    "wire.py",  # common/config/wire.py are the settings of common/wire.py
    "scaffold.py",  # the two sides of an algorithm, and what both must agree on
    "feddyn.py",
    "mirrored.py",
}


def test_no_two_files_share_a_name_but_do_different_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            places[path.name].append(str(path.relative_to(ROOT)))
    twice = {name: sorted(paths) for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in SAME_JOB} == {}
    assert SAME_JOB - twice.keys() == set(), "allowed, but not needed any more"

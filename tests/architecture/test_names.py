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
    "mirrored.py",  # what SCAFFOLD and FedDyn have in common, on each side and between them
}
SIDES = {"client_app/terms", "server_app/strategies"}
"""Of one algorithm."""


def test_no_two_files_share_a_name_but_do_different_things() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            places[path.name].add(str(path.relative_to(ROOT).parent))
    twice = {name: folders for name, folders in places.items() if len(folders) > 1}
    odd = {name: folders for name, folders in twice.items() if name not in SAME_JOB}
    assert {name: sorted(folders) for name, folders in odd.items() if folders != SIDES} == {}
    assert SAME_JOB - twice.keys() == set(), "allowed, but not needed any more"

"""How pytest-xdist shares tests out to workers: together what uses one federation, else one by one.

pytest-xdist 3.8 has groups for this (``--dist loadgroup``), but writes them into an attribute that
pytest 9.2 no longer reads, so that every test is alone.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/deployment/": "deployment",
    "tests/scripts/test_simulation.py": "ray",
    "tests/scripts/research/reproduce/test_real_run.py": "ray",
}
"""Where node ids begin that belong to one group: they share a federation, or Ray's memory."""
FILES = ("tests/failures/", "tests/deployment/test_namespaces.py")
"""Of these, each file is a group: its tests share what they start."""


def group_of(nodeid: str) -> str:
    """Return the group of a test; a test alone is its own."""
    if nodeid.startswith(FILES):
        return nodeid.partition("::")[0]
    return next((name for path, name in TOGETHER.items() if nodeid.startswith(path)), nodeid)


class ByFederation(LoadScopeScheduling):
    """Gives a worker a whole group; the method is the one that pytest-xdist says to override."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

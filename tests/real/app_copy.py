"""A copy of the app in which chosen faults strike."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real.processes import SLOW, wait_until
from tests.settings import ROOT

CLIENT_POINTS = ("arriving", "training", "writing", "replying", "uploading")
SERVER_POINTS = (
    "sending",
    "waiting",
    "aggregating",
    "distilling",
    "writing-checkpoint",
    "naming-checkpoint",
)
"""Where faults strike, in the order of a round."""

_PLAN = '''"""Which faults strike: name, point, who, round, action; written by a test."""

from pathlib import Path

MARKS = Path({marks!r})
FAULTS = {faults!r}
'''


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once.

    Attributes
    ----------
    point : str
        One of ``CLIENT_POINTS`` or ``SERVER_POINTS``.
    who : str
        A client's name, or ``server``.
    server_round : int
    action : str
        ``kill``, ``pause``, ``fill``, ``free`` (tests/real/injected/points.py), or one of
        ``CHANGES`` (replies.py) with the point ``replying``; anything else only leaves a mark.
    """

    point: str
    who: str
    server_round: int
    action: str

    @property
    def name(self) -> str:
        """The name of its mark."""
        return f"{self.point}-{self.who}-{self.server_round}-{self.action}"


@dataclass(frozen=True)
class AppCopy:
    """A folder for ``flwr run`` and the marks that its faults leave when they strike."""

    folder: Path
    marks: Path

    def struck(self, fault: Fault) -> bool:
        """Whether the fault has begun."""
        return (self.marks / fault.name).exists()

    def wait_for(self, *faults: Fault) -> None:
        """Wait until these faults have begun."""
        for fault in faults:
            wait_until(lambda: self.struck(fault), fault.name, SLOW)  # noqa: B023 (used at once)

    def release(self, fault: Fault) -> None:
        """Let a paused process go on."""
        (self.marks / fault.name).with_suffix(".go").touch()


def make_app(folder: Path, faults: Sequence[Fault] = ()) -> AppCopy:
    """Copy the app and put ``faults`` into it; the product's own files stay as they are."""
    marks = folder / "marks"
    marks.mkdir(parents=True)
    copy = folder / "app"
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("common", "client_app", "server_app"):
        shutil.copytree(ROOT / package, copy / package, ignore=ignore)
    shutil.copytree(Path(__file__).parent / "injected", copy / "injected", ignore=ignore)
    for file in ("README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy / file)
    listed = [(f.name, f.point, f.who, f.server_round, f.action) for f in faults]
    plan = _PLAN.format(marks=str(marks), faults=listed)
    (copy / "injected" / "plan.py").write_text(plan, encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for before, after in (
        ('"server_app.app:app"', '"injected.server:app"'),
        ('"client_app.app:app"', '"injected.client:app"'),
        ("fab-include = [", 'fab-include = ["injected/**/*.py", '),
    ):
        if project.count(before) != 1:
            raise ValueError(f"pyproject.toml has {before!r} not exactly once")
        project = project.replace(before, after)
    (copy / "pyproject.toml").write_text(project, encoding="utf-8")
    return AppCopy(copy, marks)

"""What a check found, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from common.config import SettingsError
from common.data.errors import DataError

if TYPE_CHECKING:
    from rich.table import Table

Status = Literal["ok", "warning", "failed"]
_COLOURS: dict[Status, str] = {"ok": "green", "warning": "yellow", "failed": "bold red"}


@dataclass(frozen=True)
class Finding:
    """The answer of one check.

    Attributes
    ----------
    status : str
        ``ok``, ``warning`` (the federation may run) or ``failed`` (it will not).
    check : str
        What was looked at.
    found : str
        What is the case.
    remedy : str
        What to do; empty where nothing is to be done.
    """

    status: Status
    check: str
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return that nothing is to be done."""
    return Finding("ok", check, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return what may go wrong."""
    return Finding("warning", check, found, remedy)


def failed(check: str, found: str, remedy: str) -> Finding:
    """Return what will go wrong."""
    return Finding("failed", check, found, remedy)


Subject = tuple[str, Callable[[], Iterable[Finding]]]
"""A name, for the case that looking itself fails, and the checks."""


def examine(subjects: Iterable[Subject]) -> Iterator[Finding]:
    """Yield all findings; a subject that can't be looked at is one, and the others go on."""
    for name, look in subjects:
        try:
            yield from look()
        except (SettingsError, DataError) as error:
            yield failed(name, str(error), "as the message says")
        except OSError as error:
            remedy = "mend it, or run this as the user who runs Moonflower here"
            yield failed(name, f"can't be looked at: {error}", remedy)


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether one finding forbids a start."""
    return any(finding.status == "failed" for finding in findings)


def as_json(findings: Iterable[Finding]) -> str:
    """Return ``{"ok": bool, "findings": [...]}`` for other programs."""
    listed = list(findings)
    shown = {"ok": not has_failed(listed), "findings": [asdict(finding) for finding in listed]}
    return json.dumps(shown, indent=2, ensure_ascii=False)


def as_table(findings: Iterable[Finding]) -> Table:
    """Return the table to print; a remedy stands below what it is for."""
    from rich.table import Table
    from rich.text import Text

    # Text, because file names and errors may have the square brackets of rich's markup.
    table = Table("Status", "Check", "Found", show_lines=False)
    for finding in findings:
        found = Text(finding.found)
        if finding.remedy:
            found.append(f"\n→ {finding.remedy}", style="italic")
        table.add_row(Text(finding.status, style=_COLOURS[finding.status]), finding.check, found)
    return table

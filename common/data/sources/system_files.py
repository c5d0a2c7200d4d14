"""What operating systems and file servers leave beside a person's own files."""

from __future__ import annotations

_NAMES = frozenset(
    {
        "__macosx",  # unpacked archives of a Mac
        "@eadir",  # Synology
        "lost+found",
        "thumbs.db",
        "desktop.ini",
        "$recycle.bin",
        "system volume information",
    }
)


def is_left_by_a_system(name: str) -> bool:
    """Return whether a file or folder of that name is nobody's data.

    So is every hidden one: ``._000.png`` (a Mac's copy to a foreign disk), ``.DS_Store``,
    ``.Trash-1000``, ``.ipynb_checkpoints``.
    """
    return name.startswith(".") or name.casefold() in _NAMES

"""The ``moonflower`` command line."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of ``pyproject.toml``."""
    from scripts.moonflower.commands import app

    app()

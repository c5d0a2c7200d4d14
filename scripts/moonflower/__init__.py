"""The ``moonflower`` command line."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of ``pyproject.toml``."""
    import sys

    from common.terminal import show_what_fits

    show_what_fits(sys.stdout, sys.stderr)
    from scripts.moonflower.commands import app

    app()

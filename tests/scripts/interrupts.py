"""For commands that a test sends a SIGINT."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """Take SIGINT as a terminal's command does; to be called in a child that was just forked.

    What a shell starts in the background ignores it, and so does all that this starts.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)

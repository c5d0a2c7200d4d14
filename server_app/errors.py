"""Why a run can't be resumed or written, and what its end tells whoever might try again.

Flower keeps no more of an exception than its text, so ``moonflower run --keep-going`` finds the
sentences below in it.
"""

from __future__ import annotations

from common.errors import MoonflowerError

PERMANENT = "Trying again as it is will not help."
"""Ends the message of an error that only a person can mend."""

NOTHING_TO_RESUME = "There is nothing to resume:"
"""Begins the message when the experiment has not begun, or another server's folder was meant."""


class ResumeError(MoonflowerError, RuntimeError):
    """An experiment can't be resumed; the message says why and what to do."""

    permanent = True


class NothingToResumeError(ResumeError):
    """There is no experiment of this name."""


class OutputError(MoonflowerError, RuntimeError):
    """Results can't be written or are being written by another server; what is there is intact."""

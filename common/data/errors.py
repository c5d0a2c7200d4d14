"""The one error of this package."""

from __future__ import annotations


class DataError(ValueError):
    """Examples are missing, damaged or don't fit the settings; the message says what to do."""

"""The one error of this package."""

from __future__ import annotations

from common.errors import MoonflowerError


class DataError(MoonflowerError, ValueError):
    """Examples are missing, damaged or don't fit the settings; the message says what to do."""

    permanent = True

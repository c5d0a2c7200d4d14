"""The base of errors that a person can act on."""

from __future__ import annotations

from typing import ClassVar


class MoonflowerError(Exception):
    """An error whose message says all that a person needs.

    Attributes
    ----------
    permanent : bool
        Whether the same run, tried again as it is, would meet it again.
    """

    permanent: ClassVar[bool] = False

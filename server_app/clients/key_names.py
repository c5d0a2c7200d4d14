"""What a node may be called: where the server knows the nodes' keys, what its key is called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.files import DamagedFileError
from common.node_keys import KEYS_VARIABLE, NUMBERS_VARIABLE, names_by_number


@dataclass(frozen=True)
class KeyNames:
    """The names of the nodes' keys, as they are registered now.

    Attributes
    ----------
    known : Mapping[int, str] or None
        By node number. None: the server knows no keys, and a node is called what it says.
    problem : str
        Why they could not be read. Then nobody new may take part: a damaged file must not let a
        node be called what it likes.
    """

    known: Mapping[int, str] | None = None
    problem: str = field(default="")

    @classmethod
    def read(cls) -> KeyNames:
        """Read them anew, since they change while a run goes on."""
        keys, numbers = (os.environ.get(name) for name in (KEYS_VARIABLE, NUMBERS_VARIABLE))
        if not keys and not numbers:
            return cls()
        if not keys or not numbers:
            return cls({}, f"only one of {KEYS_VARIABLE} and {NUMBERS_VARIABLE} is set")
        try:
            return cls(names_by_number(Path(keys), Path(numbers)))
        except (OSError, DamagedFileError) as error:
            return cls({}, str(error))

    def of(self, node_id: int) -> str:
        """Return what the node's key is called, or ""."""
        return (self.known or {}).get(node_id, "")

    def why_not(self, node_id: int, claimed: str) -> str:
        """Return why node ``node_id`` may not be called ``claimed``, or "".

        Parameters
        ----------
        node_id : int
        claimed : str
            What it calls itself, safe to show; empty where it has not said.
        """
        if self.known is None:
            return ""
        if self.problem:
            return (
                f"whose key it has can't be told, so it may not take part: {self.problem}. Mend "
                "that on the server; moonflower nodes sync writes the file of numbers anew"
            )
        name = self.of(node_id)
        if not name:
            return f"it calls itself {claimed!r}, but no key in the server's bundle is its"
        if claimed not in ("", name):
            return (
                f"it calls itself {claimed!r}, but its key is that of {name!r}: set client-name "
                f"(MOONFLOWER_CLIENT_NAME in node.env) to {name!r} there, or find out who uses "
                "that key"
            )
        return ""

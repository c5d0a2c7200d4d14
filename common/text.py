"""Text from elsewhere, made safe to show: file names, exceptions, whatever a node calls itself.

A terminal obeys escape sequences, a log has one entry a line, marks of direction make a text read
otherwise than it is, and half a surrogate pair, Python's form of a file name that is not UTF-8,
can't even be sent. What leaves a node and what the server keeps of a node goes through here.
"""

from __future__ import annotations

import reprlib

LONGEST = 600
"""Characters. A reason is logged, and kept in ``metrics.jsonl`` and in every later checkpoint."""

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = 12
_SHORT.maxdict = _SHORT.maxset = 6
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 80


def escaped(text: str) -> str:
    r"""Return ``text`` with everything that is not printable written out, as ``\x1b``, ``\u202e``.

    Letters of all languages and plain spaces stay. Bytes of a file name that is not UTF-8 are
    written as they are on the disk (``\xfc``). What is escaped already stays as it is, so that
    a text may be made safe where it leaves and again where it arrives.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def safe_text(text: str, longest: int = LONGEST, *, keep_end: bool = False) -> str:
    """Return ``text`` escaped, on one line and cut.

    Parameters
    ----------
    text : str
        Of any length and content.
    longest : int
        Characters that are kept, at least 1; `` ...`` says that there were more.
    keep_end : bool
        Whether the end is kept instead of the beginning, as for a traceback.

    Returns
    -------
    str
        Line breaks and other white space have become single spaces.
    """
    # Cut before it is looked at: it may have a hundred million characters.
    part = text[-4 * longest :] if keep_end else text[: 4 * longest]
    line = escaped(" ".join(part.split()))
    if len(line) <= longest and len(part) == len(text):
        return line
    kept = ["...", line[-longest:]] if keep_end else [line[:longest], "..."]
    return " ".join(" ".join(kept).split())


def shown(value: object) -> str:
    """Return a value as a program would write it, short and on one line, for an error message."""
    return safe_text(_SHORT.repr(value), LONGEST // 2)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode's way to keep the byte code - 0xDC00
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")

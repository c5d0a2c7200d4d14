"""Next-character prediction on Shakespeare's plays; each speaker is a client, as in LEAF.

A million characters of the plays (public domain) as Andrej Karpathy put them together for char-rnn.
``shakespeare/`` of the data folder holds ``tinyshakespeare.txt``, or the same as ``.txt.gz``. An
example is 80 characters of what one speaker says in the whole set, line after line, and the
character after them (Caldas et al., LEAF, 2018, arXiv:1812.01097). The last fifth of each
speaker's text is for testing: windows overlap, so a test of random ones would ask for what was
trained on.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.sites import Sites
from common.data.sources.base import Identity, Split, identity_of
from common.files import sha256, write_bytes

ADDRESS = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
"""Of the text, unpacked."""
TIMEOUT = 60.0
"""Seconds to wait for the server to answer."""
_LOCK_TIMEOUT = 600.0

ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""All 65 characters of the text; the label of one is its place, its id as a token 1 more."""
WINDOW = 80
TEST_FRACTION = 0.2

_NAMES = ("tinyshakespeare.txt", "tinyshakespeare.txt.gz")


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity:
    """Return the identity of the file and the number of speakers, after a download if need be.

    Raises
    ------
    DataError
        The file is missing.
    """
    path = _find(folder)
    if path is None and settings.download:
        _download(folder)
        path = _find(folder)
    if path is None:
        raise DataError(
            f"data set 'shakespeare' was looked for in {folder / 'shakespeare'} and not found: put "
            f"{' or '.join(_NAMES)} there ({ADDRESS}), or set data.download=true to fetch it"
        )
    return [["speakers", settings.speakers], *identity_of([path])]


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Return the windows of the ``data.speakers`` speakers who say most.

    Raises
    ------
    DataError
        The file is another one, or there are not so many speakers who say enough.
    """
    path = _find(folder)
    if path is None:
        raise DataError(f"{folder / 'shakespeare'} has lost its file; put it back and try again")
    spoken = by_speaker(_text(path))
    enough = [name for name, text in spoken.items() if len(text) * TEST_FRACTION > WINDOW]
    if settings.speakers > len(enough):
        raise DataError(
            f"data.speakers={settings.speakers}: {len(enough)} speakers say enough for windows of "
            f"{WINDOW} characters in their last fifth; ask for at most so many"
        )
    # By name where two say as much.
    chosen = sorted(enough, key=lambda name: (-len(spoken[name]), name))[: settings.speakers]
    parts = [_windows(_codes(_part(spoken[name], split))) for name in chosen]
    windows = np.concatenate(parts)
    names = [name for name, part in zip(chosen, parts, strict=True) for _ in range(len(part))]
    sites = Sites.named_by(names, "speaker", str(path))
    return Arrays(windows[:, :WINDOW] + np.uint8(1), windows[:, WINDOW].astype(np.int64), sites)


def by_speaker(text: str) -> dict[str, str]:
    """Return what each speaker says, without the names.

    A speech is a name, a colon, and lines up to an empty one.
    """
    spoken: dict[str, str] = defaultdict(str)
    for speech in text.split("\n\n"):
        name, colon, lines = speech.strip("\n").partition(":\n")
        if colon:
            spoken[name] += f"{lines}\n"
    return dict(spoken)


def _part(text: str, split: Split) -> str:
    begin = round(len(text) * (1 - TEST_FRACTION))
    return text[:begin] if split == "train" else text[begin:]


def _codes(text: str) -> NDArray[np.uint8]:
    place = {character: number for number, character in enumerate(ALPHABET)}
    return np.array([place[character] for character in text], dtype=np.uint8)


def _windows(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return ``[n, WINDOW + 1]``: every character of ``codes`` with the window before it."""
    return np.lib.stride_tricks.sliding_window_view(codes, WINDOW + 1)


def _find(folder: Path) -> Path | None:
    paths = (folder / "shakespeare" / name for name in _NAMES)
    return next((path for path in paths if path.is_file()), None)


def _text(path: Path) -> str:
    try:
        blob = path.read_bytes()
        blob = gzip.decompress(blob) if path.suffix == ".gz" else blob
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read: {error}. Fetch it anew") from error
    if sha256(blob) != SHA256:
        raise DataError(
            f"{path} is not the text that was expected: its SHA-256, unpacked, is {sha256(blob)} "
            f"instead of {SHA256}. Delete it, then fetch it anew with data.download=true"
        )
    return blob.decode("ascii")


def _download(folder: Path) -> None:
    from urllib.request import urlopen

    from filelock import FileLock, Timeout

    target = folder / "shakespeare" / _NAMES[0]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Simulated clients share the folder: one of them downloads, the others wait for it.
        with FileLock(folder / ".shakespeare.lock", timeout=_LOCK_TIMEOUT):
            if _find(folder) is None:
                with urlopen(ADDRESS, timeout=TIMEOUT) as answer:
                    blob: bytes = answer.read()
                if sha256(blob) != SHA256:
                    raise DataError(
                        f"{ADDRESS} is not the text that was expected: its SHA-256 is "
                        f"{sha256(blob)} instead of {SHA256}"
                    )
                write_bytes(target, blob)
    except (OSError, Timeout) as error:
        raise DataError(
            f"data set 'shakespeare' could not be downloaded to {target}: {error}. Check the "
            "network and the folder, or put the file there yourself"
        ) from error

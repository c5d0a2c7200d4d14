"""Image files of a class: which files they are, and what is in them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from common.data.errors import DataError
from common.data.sources.system_files import is_left_by_a_system

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP", "GIF")
"""Pillow's names of what is recognised by content, whatever the file's name. PPM is not among them:
many a text begins as such a file does."""

_CHANNELS_OF_MODE = {"1": 1, "L": 1, "P": 3, "RGB": 3, "RGBA": 4}


@dataclass(frozen=True)
class Listing:
    """The files below a folder.

    Attributes
    ----------
    files : tuple of Path
        Sorted.
    ignored : int
        How many beside them a system has left, a folder counted as one.
    """

    files: tuple[Path, ...]
    ignored: int


def list_files(folder: Path) -> Listing:
    """Return all files below ``folder``, at any depth; links to folders are not followed.

    Raises
    ------
    OSError
        A folder can't be listed.
    """
    found: list[Path] = []
    ignored = 0
    for place, folders, names in os.walk(folder, onerror=_raise):
        kept = [name for name in folders if not is_left_by_a_system(name)]
        ignored += len(folders) - len(kept)
        folders[:] = kept  # os.walk goes on into these
        for name in names:
            if is_left_by_a_system(name):
                ignored += 1
            elif (path := Path(place, name)).is_file():
                found.append(path)
    return Listing(tuple(sorted(found)), ignored)


def is_image(path: Path) -> bool:
    """Return whether the file is an image by its suffix or, where that says nothing, its content.

    Raises
    ------
    DataError
        It can't be read.
    """
    if path.suffix.lower() in EXTENSIONS:
        return True
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS):
            return True
    except Image.DecompressionBombError:
        return True
    except UnidentifiedImageError:
        return False
    except OSError as error:
        raise DataError(f"{path} can't be read: {error}. Mend its permissions or remove it") from (
            error
        )
    except Exception:  # each of Pillow's parsers raises its own: it isn't what it begins like
        return False


def counted_suffixes(paths: Iterable[Path]) -> str:
    """Return how many files of which suffixes there are, as ``14 files (.dcm 12, no suffix 2)``."""
    suffixes = Counter(path.suffix.lower() or "no suffix" for path in paths)
    total = suffixes.total()
    listed = ", ".join(f"{suffix} {count}" for suffix, count in suffixes.most_common(10))
    return f"{total} file{'s' if total > 1 else ''} ({listed})"


def read_image(path: Path, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Return an image's bytes, uint8 ``[channels, height, width]``; it is not resized.

    Raises
    ------
    DataError
        Names a file that can't be read, has several frames or is not of that shape.
    """
    from PIL import Image

    channels = shape[0]
    try:
        with Image.open(path) as image:
            problem = "".join(_problems(image, shape))
            if problem:
                raise DataError(f"{path}: {problem}")
            pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels]))
    except DataError:
        raise
    except Exception as error:  # each of Pillow's decoders raises its own
        raise DataError(
            f"{path} can't be read as an image: {error}. Repair or remove it"
        ) from error
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _problems(image: Any, shape: tuple[int, int, int]) -> Iterator[str]:
    """Yield why the image can't be used, if so."""
    frames = getattr(image, "n_frames", 1)
    # A phone's MPO is one picture with previews beside it.
    if frames > 1 and image.format != "MPO":
        yield (
            f"it has {frames} frames ({image.format}), and one image is one example. Save each "
            "frame that is meant as a file of its own"
        )
        return
    channels, height, width = shape
    found = (_CHANNELS_OF_MODE.get(image.mode), image.height, image.width)
    if found[0] is None:
        yield (
            f"mode {image.mode!r} is not supported; allowed are 8-bit grey, palette, RGB and RGBA "
            "images"
        )
    elif found != shape:
        yield (
            f"expected {channels}x{height}x{width} (data.image-shape: channels x height x width), "
            f"found {found[0]}x{found[1]}x{found[2]}. Images are not resized: convert them, or "
            "change data.image-shape"
        )


def _raise(error: OSError) -> NoReturn:
    raise error

"""A site's own images, one folder per class (torchvision's ImageFolder layout).

Training images lie in ``train/<class>/`` or, without a folder ``train``, directly in ``<class>/``;
an optional test set in ``test/<class>/``. Class ids follow ``data.class-names``. Where that is
empty, they follow the sorted names of the class folders, so that **every site needs a folder for
every class**, an empty one for a class it has no images of: otherwise one site's label 1 would be
another's label 2. Names are compared after NFC: a Mac writes an ``é`` as two characters.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.kinds import Image
from common.data.sources.base import Identity, Split, identity_of
from common.data.sources.image_files import counted_suffixes, is_image, list_files, read_image
from common.data.sources.system_files import is_left_by_a_system
from common.data.spec import data_spec
from common.logs import NAME

Classes = dict[str, Path | None]

_LOG = logging.getLogger(NAME)


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity | None:
    """Return the identity of every file; ``None`` for a test set that isn't there.

    Files that are no images count too: only :func:`decode` looks into them.

    Raises
    ------
    DataError
        No class folders, not as many as ``data.num-classes``, or others than ``data.class-names``.
    OSError
        A folder can't be listed.
    """
    classes = _class_folders(settings, folder, split)
    if classes is None:
        return None
    files = (file for path in classes.values() if path for file in list_files(path).files)
    return [["classes", *classes], *identity_of(files)]


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read every image; none is resized.

    Raises
    ------
    DataError
        Names a file that can't be read or is not of ``data.image-shape``, or a class in which no
        file is an image.
    """
    classes = _class_folders(settings, folder, split)
    if classes is None:
        raise DataError(f"{folder / split} has disappeared; put it back and try again")
    files, others = _images(classes)
    _say_what_is_left_out(_root(folder, split), classes, others)
    shape = cast(Image, data_spec(settings).kind).shape
    images = np.empty((len(files), *shape), dtype=np.uint8)
    for row, (path, _) in enumerate(files):
        images[row] = read_image(path, shape)
    return Arrays(images, np.array([label for _, label in files], dtype=np.int64))


def _images(classes: Classes) -> tuple[list[tuple[Path, int]], list[Path]]:
    """Return the images with their class ids, and the files that are none."""
    found: list[tuple[Path, int]] = []
    others: list[Path] = []
    for label, path in enumerate(classes.values()):
        files = list_files(path).files if path else ()
        images = [file for file in files if is_image(file)]
        if files and not images:
            raise DataError(
                f"{path} has no image among {counted_suffixes(files)}. Convert them, as to PNG, or "
                "take them away, if this site has no images of that class"
            )
        found += [(image, label) for image in images]
        others += sorted(set(files) - set(images))
    return found, others


def _say_what_is_left_out(root: Path, classes: Classes, others: list[Path]) -> None:
    ignored = sum(list_files(path).ignored for path in classes.values() if path)
    ignored += sum(is_left_by_a_system(name) for name, _ in _named(root))
    if others:
        counted = counted_suffixes(others)
        _LOG.warning("%s: passed over %s that are no images, as %s", root, counted, others[0])
    if ignored:
        _LOG.warning(
            "%s: ignored %d files and folders that a system has left, as .DS_Store or @eaDir",
            root,
            ignored,
        )


def _class_folders(settings: DataSettings, folder: Path, split: Split) -> Classes | None:
    """Return the folder of each class, in the order of class ids, by its name in NFC.

    A class that ``data.class-names`` lists has None where it has no folder.
    """
    root = _root(folder, split)
    if split == "test" and not root.is_dir():
        return None
    found = _folders_in(root, reserved={"train", "test"} if root == folder else set())
    if not found:
        raise DataError(
            f"no examples: looked in {folder} for train/<class>/ or <class>/ with images. Put them "
            "there, or point data-dir of the node config (or MOONFLOWER_DATA_DIR) at them"
        )
    if settings.classes:
        names = [_composed(name) for name in settings.classes]
        _check_names(root, found, names)
        return {name: found.get(name) for name in names}
    _check_classes(root, list(found), settings.num_classes)
    if split == "test":
        _check_same_classes(folder, found)
    return dict(found)


def _root(folder: Path, split: Split) -> Path:
    is_flat = split == "train" and not (folder / "train").is_dir()
    return folder if is_flat else folder / split


def _folders_in(root: Path, reserved: set[str]) -> dict[str, Path]:
    """Return the folders that may be classes, by their names in NFC, sorted by them."""
    found: dict[str, Path] = {}
    for name, path in sorted(_named(root)):
        if is_left_by_a_system(name) or name in reserved or not path.is_dir():
            continue
        if name in found:
            raise DataError(
                f"{root} has two class folders that are both named {name}, once with composed and "
                "once with decomposed characters (Unicode NFC and NFD, as a Mac writes them): "
                "merge them"
            )
        found[name] = path
    return found


def _named(root: Path) -> Iterator[tuple[str, Path]]:
    for path in root.iterdir() if root.is_dir() else ():
        yield _composed(path.name), path


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _check_classes(root: Path, classes: list[str], num_classes: int) -> None:
    if len(classes) != num_classes:
        raise DataError(
            f"set data.class-names in the run's settings, as 'cat,dog', so that a site need not "
            f"have every class: {root} has {len(classes)} class folders "
            f"({', '.join(classes[:10])}), but data.num-classes is {num_classes}. Without "
            "data.class-names class ids follow the sorted names of the folders, and every site "
            "needs one for every class: else make empty folders for the classes without images"
        )


def _check_names(root: Path, found: dict[str, Path], names: list[str]) -> None:
    unknown = [name for name in found if name not in names]
    if unknown:
        more = ", ..." if len(names) > 10 else ""
        raise DataError(
            f"{root} has folders that are none of the classes: {', '.join(unknown[:10])}. The "
            f"run's data.class-names are {', '.join(names[:10])}{more}: rename the folders, or "
            "move them elsewhere"
        )


def _check_same_classes(folder: Path, test_classes: dict[str, Path]) -> None:
    train_folder = _root(folder, "train")
    train = {name for name, path in _named(train_folder) if path.is_dir()}
    odd = sorted(test_classes.keys() - train)
    if odd:
        raise DataError(
            f"{folder / 'test'} has class folders that {train_folder} lacks: {', '.join(odd)}. "
            "Both need the same class folders, or their class ids differ"
        )

"""A site's own images, one folder per class (torchvision's ImageFolder layout).

Training images lie in ``train/<class>/`` or, without a folder ``train``, directly in ``<class>/``;
an optional test set in ``test/<class>/``. Class ids follow ``data.class-names``. Where that is
empty, they follow the sorted names of the class folders, so that **every site needs a folder for
every class**, an empty one for a class it has no images of: otherwise one site's label 1 would be
another's label 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.sources.base import Identity, Split, identity_of
from common.data.spec import data_spec

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
_CHANNELS_OF_MODE = {"1": 1, "L": 1, "P": 3, "RGB": 3, "RGBA": 4}


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity | None:
    """Return the identity of every image; ``None`` for a test set that isn't there.

    Raises
    ------
    DataError
        No class folders, not as many as ``data.num-classes``, or others than ``data.class-names``.
    """
    classes = _class_folders(settings, folder, split)
    if classes is None:
        return None
    images = (image for path in classes for image in _image_files(path))
    return [["classes", *(path.name for path in classes)], *identity_of(images)]


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read every image; none is resized.

    Raises
    ------
    DataError
        Names a file that can't be read or is not of ``data.image-shape``.
    """
    classes = _class_folders(settings, folder, split)
    if classes is None:
        raise DataError(f"{folder / split} has disappeared; put it back and try again")
    files = [(image, label) for label, path in enumerate(classes) for image in _image_files(path)]
    shape = data_spec(settings).shape
    images = np.empty((len(files), *shape), dtype=np.uint8)
    for row, (path, _) in enumerate(files):
        images[row] = _read_image(path, shape)
    return Arrays(images, np.array([label for _, label in files], dtype=np.int64))


def _class_folders(settings: DataSettings, folder: Path, split: Split) -> list[Path] | None:
    root = folder / split if split == "test" else _train_root(folder)
    if split == "test" and not root.is_dir():
        return None
    classes = _folders_in(root, reserved={"train", "test"} if root == folder else set())
    if not classes:
        raise DataError(
            f"no examples: looked in {folder} for train/<class>/ or <class>/ with images. Put them "
            "there, or point data-dir of the node config (or MOONFLOWER_DATA_DIR) at them"
        )
    if settings.classes:
        _check_names(root, classes, settings.classes)
        return [root / name for name in settings.classes]
    _check_classes(root, classes, settings.num_classes)
    if split == "test":
        _check_same_classes(folder, classes)
    return classes


def _train_root(folder: Path) -> Path:
    return folder / "train" if (folder / "train").is_dir() else folder


def _folders_in(root: Path, reserved: set[str]) -> list[Path]:
    return sorted(
        path
        for path in (root.iterdir() if root.is_dir() else ())
        if path.is_dir() and not path.name.startswith(".") and path.name not in reserved
    )


def _check_classes(root: Path, classes: list[Path], num_classes: int) -> None:
    if len(classes) != num_classes:
        raise DataError(
            f"{root} has {len(classes)} class folders ({', '.join(c.name for c in classes[:10])}), "
            f"but data.num-classes is {num_classes}. Class ids follow the sorted names of the "
            "folders, so every site needs one for every class: make empty folders for the classes "
            "without images, or have the run name all of them in data.class-names"
        )


def _check_names(root: Path, found: list[Path], names: tuple[str, ...]) -> None:
    unknown = [path.name for path in found if path.name not in names]
    if unknown:
        more = ", ..." if len(names) > 10 else ""
        raise DataError(
            f"{root} has folders that are none of the classes: {', '.join(unknown[:10])}. The "
            f"run's data.class-names are {', '.join(names[:10])}{more}: rename the folders, or "
            "move them elsewhere"
        )


def _check_same_classes(folder: Path, test_classes: list[Path]) -> None:
    train_folder = _train_root(folder)
    odd = sorted(path.name for path in test_classes if not (train_folder / path.name).is_dir())
    if odd:
        raise DataError(
            f"{folder / 'test'} has class folders that {train_folder} lacks: {', '.join(odd)}. "
            "Both need the same class folders, or their class ids differ"
        )


def _image_files(class_folder: Path) -> list[Path]:
    return sorted(
        path
        for path in class_folder.rglob("*")
        if path.suffix.lower() in EXTENSIONS and path.is_file()
    )


def _read_image(path: Path, shape: tuple[int, int, int]) -> NDArray[Any]:
    from PIL import Image

    channels, height, width = shape
    try:
        with Image.open(path) as image:
            found = (_CHANNELS_OF_MODE.get(image.mode), image.height, image.width)
            if found[0] is None:
                raise DataError(
                    f"{path}: mode {image.mode!r} is not supported; allowed are 8-bit grey, "
                    "palette, RGB and RGBA images"
                )
            if found != shape:
                raise DataError(
                    f"{path}: expected {channels}x{height}x{width} (data.image-shape: channels x "
                    f"height x width), found {found[0]}x{found[1]}x{found[2]}. Images are not "
                    "resized: convert them, or change data.image-shape"
                )
            pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels]))
    except DataError:
        raise
    except Exception as error:  # each of Pillow's decoders raises its own
        raise DataError(
            f"{path} can't be read as an image: {error}. Repair or remove it"
        ) from error
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
